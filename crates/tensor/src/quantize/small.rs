//! Blocks of 32 elements with one scale, or one scale and one offset: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.

use super::fit::{self, Group, Line, line};
use super::levels::{Levels, Steps, Table};
use super::{importance, pack, put_half, to_half};

const LEN: usize = 32;

pub fn q4_0(values: &[f32], block: &mut [u8]) {
    let (d, codes) = scaled(values, &steps(-8.0, 7.0));
    put_half(block, 0, d);
    pack::nibbles(&codes, &mut block[2..18]);
}

pub fn q5_0(values: &[f32], block: &mut [u8]) {
    let (d, codes) = scaled(values, &steps(-16.0, 15.0));
    put_half(block, 0, d);
    pack::five_bits(&codes, &mut block[2..22]);
}

pub fn q8_0(values: &[f32], block: &mut [u8]) {
    let (d, codes) = scaled(values, &steps(-127.0, 127.0));
    put_half(block, 0, d);
    for (byte, code) in block[2..].iter_mut().zip(codes) {
        *byte = code.wrapping_sub(127);
    }
}

pub fn iq4_nl(values: &[f32], block: &mut [u8]) {
    let (d, codes) = scaled(values, &Table);
    put_half(block, 0, d);
    pack::nibbles(&codes, &mut block[2..18]);
}

pub fn q4_1(values: &[f32], block: &mut [u8]) {
    let (halves, codes) = affine(values, 15.0);
    put_half(block, 0, halves[0]);
    put_half(block, 2, halves[1]);
    pack::nibbles(&codes, &mut block[4..20]);
}

pub fn q5_1(values: &[f32], block: &mut [u8]) {
    let (halves, codes) = affine(values, 31.0);
    put_half(block, 0, halves[0]);
    put_half(block, 2, halves[1]);
    pack::five_bits(&codes, &mut block[4..24]);
}

fn steps(low: f32, high: f32) -> Steps {
    Steps { low, high }
}

fn scaled(values: &[f32], levels: &impl Levels) -> (half::f16, [u8; LEN]) {
    let mut weights = [0.0; LEN];
    importance::of(values, &mut weights);
    let group = Group {
        values,
        weights: &weights,
    };
    let fitted = to_half(fit::scale(&group, levels));
    let obvious = to_half(group.peak() / levels.farthest());
    let loss = |d: half::f16| group.loss(levels, line(d.to_f32()));
    // Rounding the scale to a half may have cost what the search had won.
    let d = match loss(fitted) <= loss(obvious) {
        true => fitted,
        false => obvious,
    };
    let mut codes = [0; LEN];
    group.codes(levels, line(d.to_f32()), &mut codes);
    (d, codes)
}

fn affine(values: &[f32], top: f32) -> ([half::f16; 2], [u8; LEN]) {
    let mut weights = [0.0; LEN];
    importance::of(values, &mut weights);
    let group = Group {
        values,
        weights: &weights,
    };
    let levels = steps(0.0, top);
    let (fitted, obvious) = fit::affine(&group, &levels, top, false);
    let stored = |halves: [half::f16; 2]| Line {
        scale: halves[0].to_f32(),
        offset: halves[1].to_f32(),
    };
    let halves = |line: Line| [to_half(line.scale), to_half(line.offset)];
    let loss = |halves| group.loss(&levels, stored(halves));
    let (fitted, obvious) = (halves(fitted), halves(obvious));
    let chosen = match loss(fitted) <= loss(obvious) {
        true => fitted,
        false => obvious,
    };
    let mut codes = [0; LEN];
    group.codes(&levels, stored(chosen), &mut codes);
    (chosen, codes)
}
