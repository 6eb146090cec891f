//! Q6_K: 16 sub-blocks of 16 with signed 8-bit scales.

use super::levels::Steps;
use super::{put_half, super_block};
use crate::blocks::q6_k::{SCALE, SUB_SCALES};

pub fn quantize(values: &[f32], block: &mut [u8]) {
    let levels = Steps {
        low: -32.0,
        high: 31.0,
    };
    let found = super_block::scaled(values, 16, &levels, -128..=127);
    block[..SUB_SCALES].fill(0);
    for (i, code) in found.codes.iter().enumerate() {
        let (half, quarter, lane) = (i / 128, i / 32 % 4, i % 32);
        block[half * 64 + quarter % 2 * 32 + lane] |= (code & 15) << (4 * (quarter / 2));
        block[128 + half * 32 + lane] |= (code >> 4) << (2 * quarter);
    }
    for (byte, scale) in block[SUB_SCALES..].iter_mut().zip(found.scales) {
        *byte = scale as u8;
    }
    put_half(block, SCALE, found.d);
}
