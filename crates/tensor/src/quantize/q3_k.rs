//! Q3_K: 16 sub-blocks of 16 with signed 6-bit scales.

use super::levels::Steps;
use super::{pack, put_half, super_block};
use crate::blocks::q3_k::SCALE;

pub fn quantize(values: &[f32], block: &mut [u8]) {
    let levels = Steps {
        low: -4.0,
        high: 3.0,
    };
    let found = super_block::scaled(values, 16, &levels, -32..=31);
    pack::single_bits(&found.codes, 2, &mut block[..32]);
    pack::bit_pairs(&found.codes, &mut block[32..96]);
    block[96..108].fill(0);
    for (j, scale) in found.scales.iter().enumerate() {
        let stored = (scale + 32) as u8;
        block[96 + j % 8] |= (stored & 15) << (4 * (j / 8));
        block[104 + j % 4] |= (stored >> 4) << (2 * (j / 4));
    }
    put_half(block, SCALE, found.d);
}
