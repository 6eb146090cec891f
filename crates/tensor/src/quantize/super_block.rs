//! Owns the scales of 256 elements in sub-blocks: each sub-block's scale is a small whole number of what the block's half
//! says. Whole numbers are chosen by what is lost with the half as it will be stored.

use super::fit::{self, Group, Line, line};
use super::levels::{Levels, Steps, round};
use super::{importance, to_half};
use half::f16;
use std::ops::RangeInclusive;

pub const LEN: usize = 256;
const MOST_SUBS: usize = 16;
/// Rounds of whole numbers by halves and halves by whole numbers; hardly any block gains from a fourth.
const ROUNDS: usize = 3;

/// Sub-blocks with a signed scale each.
#[derive(Debug)]
pub struct Scaled {
    pub d: f16,
    pub scales: [i8; MOST_SUBS],
    pub codes: [u8; LEN],
}

/// Sub-blocks with a scale and a minimum, which is subtracted.
#[derive(Debug)]
pub struct Affine {
    pub d: f16,
    pub dmin: f16,
    pub scales: [u8; MOST_SUBS],
    pub mins: [u8; MOST_SUBS],
    pub codes: [u8; LEN],
}

/// 256 elements in sub-blocks.
struct Super<'a> {
    values: &'a [f32],
    weights: [f32; LEN],
    sub_len: usize,
}

impl<'a> Super<'a> {
    fn new(values: &'a [f32], sub_len: usize) -> Super<'a> {
        let mut weights = [0.0; LEN];
        for (values, weights) in values
            .chunks_exact(sub_len)
            .zip(weights.chunks_exact_mut(sub_len))
        {
            importance::of(values, weights);
        }
        Super {
            values,
            weights,
            sub_len,
        }
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let values = self.values.chunks_exact(self.sub_len);
        let weights = self.weights.chunks_exact(self.sub_len);
        values
            .zip(weights)
            .map(|(values, weights)| Group { values, weights })
    }

    fn codes(&self, levels: &impl Levels, line: impl Fn(usize) -> Line) -> [u8; LEN] {
        let mut codes = [0; LEN];
        let parts = codes.chunks_exact_mut(self.sub_len);
        for (j, (group, codes)) in self.groups().zip(parts).enumerate() {
            group.codes(levels, line(j), codes);
        }
        codes
    }
}

/// Scales from `lowest` to `highest`.
pub fn scaled(
    values: &[f32],
    sub_len: usize,
    levels: &impl Levels,
    whole: RangeInclusive<i32>,
) -> Scaled {
    let block = Super::new(values, sub_len);
    let mut obvious = [0.0; MOST_SUBS];
    let mut wanted = [0.0; MOST_SUBS];
    for (j, group) in block.groups().enumerate() {
        obvious[j] = group.peak() / levels.farthest();
        wanted[j] = fit::scale(&group, levels);
    }
    let first_half = |scales: &[f32]| {
        let farthest = scales
            .iter()
            .fold(0.0, |a: f32, b| if b.abs() > a.abs() { *b } else { a });
        to_half(farthest / *whole.start() as f32)
    };
    let mut best = assign_scales(&block, levels, first_half(&obvious), &obvious, 0, &whole);
    let mut next = assign_scales(&block, levels, first_half(&wanted), &wanted, 1, &whole);
    for _ in 0..ROUNDS {
        let d = next.refit(&block, levels);
        if next.loss < best.loss {
            best = next;
        }
        next = assign_scales(&block, levels, d, &wanted, 1, &whole);
    }
    if next.loss < best.loss {
        best = next;
    }
    let d = best.d.to_f32();
    Scaled {
        d: best.d,
        scales: best.scales,
        codes: block.codes(levels, |j| line(d * best.scales[j] as f32)),
    }
}

struct Scales {
    loss: f32,
    d: f16,
    scales: [i8; MOST_SUBS],
}

/// For each sub-block the whole number, at most `reach` from the nearest, that loses least.
fn assign_scales(
    block: &Super,
    levels: &impl Levels,
    d: f16,
    wanted: &[f32],
    reach: i32,
    whole: &RangeInclusive<i32>,
) -> Scales {
    let mut chosen = Scales {
        loss: 0.0,
        d,
        scales: [0; MOST_SUBS],
    };
    let d = d.to_f32();
    for (j, group) in block.groups().enumerate() {
        let nearest = nearest_whole(wanted[j], d, whole);
        let mut best = (f32::INFINITY, 0);
        for number in near(nearest, reach, whole) {
            let loss = group.loss(levels, line(d * number as f32));
            if loss < best.0 {
                best = (loss, number);
            }
        }
        chosen.loss += best.0;
        chosen.scales[j] = best.1 as i8;
    }
    chosen
}

impl Scales {
    /// The half that loses least with these whole numbers and the codes they lead to.
    fn refit(&self, block: &Super, levels: &impl Levels) -> f16 {
        let (mut xq, mut qq) = (0.0, 0.0);
        for (group, scale) in block.groups().zip(self.scales) {
            let scale = scale as f32;
            let sums = group.sums(levels, line(self.d.to_f32() * scale));
            xq += scale * sums.xq;
            qq += scale * scale * sums.qq;
        }
        match qq > 0.0 {
            true => to_half(xq / qq),
            false => self.d,
        }
    }
}

/// Codes from 0 to `top`, scales and minima from 0 to `most`.
pub fn affine(values: &[f32], sub_len: usize, top: f32, most: i32) -> Affine {
    let block = Super::new(values, sub_len);
    let levels = Steps {
        low: 0.0,
        high: top,
    };
    let none = line(0.0);
    let (mut obvious, mut wanted) = ([none; MOST_SUBS], [none; MOST_SUBS]);
    for (j, group) in block.groups().enumerate() {
        (wanted[j], obvious[j]) = fit::affine(&group, &levels, top, true);
    }
    let first_halves = |lines: &[Line]| {
        let scale = lines.iter().fold(0.0, |a: f32, line| a.max(line.scale));
        let min = lines.iter().fold(0.0, |a: f32, line| a.max(-line.offset));
        [to_half(scale / most as f32), to_half(min / most as f32)]
    };
    let mut best = assign_lines(&block, &levels, first_halves(&obvious), &obvious, 0, most);
    let mut next = assign_lines(&block, &levels, first_halves(&wanted), &wanted, 1, most);
    for _ in 0..ROUNDS {
        let halves = next.refit(&block, &levels);
        if next.loss < best.loss {
            best = next;
        }
        next = assign_lines(&block, &levels, halves, &wanted, 1, most);
    }
    if next.loss < best.loss {
        best = next;
    }
    Affine {
        d: best.halves[0],
        dmin: best.halves[1],
        scales: best.scales,
        mins: best.mins,
        codes: block.codes(&levels, |j| best.line(j)),
    }
}

struct Lines {
    loss: f32,
    halves: [f16; 2],
    scales: [u8; MOST_SUBS],
    mins: [u8; MOST_SUBS],
}

fn assign_lines(
    block: &Super,
    levels: &Steps,
    halves: [f16; 2],
    wanted: &[Line],
    reach: i32,
    most: i32,
) -> Lines {
    let mut chosen = Lines {
        loss: 0.0,
        halves,
        scales: [0; MOST_SUBS],
        mins: [0; MOST_SUBS],
    };
    let [d, dmin] = halves.map(f16::to_f32);
    let whole = 0..=most;
    for (j, group) in block.groups().enumerate() {
        let scale = nearest_whole(wanted[j].scale, d, &whole);
        let min = nearest_whole(-wanted[j].offset, dmin, &whole);
        let mut best = (f32::INFINITY, 0, 0);
        for scale in near(scale, reach, &whole) {
            for min in near(min, reach, &whole) {
                let loss = group.loss(
                    levels,
                    Line {
                        scale: d * scale as f32,
                        offset: -(dmin * min as f32),
                    },
                );
                if loss < best.0 {
                    best = (loss, scale, min);
                }
            }
        }
        chosen.loss += best.0;
        chosen.scales[j] = best.1 as u8;
        chosen.mins[j] = best.2 as u8;
    }
    chosen
}

impl Lines {
    fn line(&self, j: usize) -> Line {
        Line {
            scale: self.halves[0].to_f32() * self.scales[j] as f32,
            offset: -(self.halves[1].to_f32() * self.mins[j] as f32),
        }
    }

    /// The two halves that lose least with these whole numbers and the codes they lead to: least squares of
    /// `x = d * scale * q - dmin * min` over the whole block.
    fn refit(&self, block: &Super, levels: &Steps) -> [f16; 2] {
        let (mut qq, mut qm, mut mm, mut xq, mut xm) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (j, group) in block.groups().enumerate() {
            let sums = group.sums(levels, self.line(j));
            let (scale, min) = (self.scales[j] as f32, self.mins[j] as f32);
            qq += scale * scale * sums.qq;
            qm += scale * min * sums.q;
            mm += min * min * sums.one;
            xq += scale * sums.xq;
            xm += min * sums.x;
        }
        let determinant = qq * mm - qm * qm;
        let (d, dmin) = match determinant > 0.0 {
            true => (
                (xq * mm - xm * qm) / determinant,
                (xq * qm - xm * qq) / determinant,
            ),
            false if qq > 0.0 => (xq / qq, self.halves[1].to_f32()),
            false => return self.halves,
        };
        match d > 0.0 && dmin >= 0.0 {
            true => [to_half(d), to_half(dmin)],
            false => self.halves,
        }
    }
}

fn nearest_whole(wanted: f32, unit: f32, whole: &RangeInclusive<i32>) -> i32 {
    if unit == 0.0 {
        return 0;
    }
    let (least, most) = (*whole.start() as f32, *whole.end() as f32);
    round((wanted / unit).clamp(least, most)) as i32
}

fn near(number: i32, reach: i32, whole: &RangeInclusive<i32>) -> RangeInclusive<i32> {
    (number - reach).max(*whole.start())..=(number + reach).min(*whole.end())
}
