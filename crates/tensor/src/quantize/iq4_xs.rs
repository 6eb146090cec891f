//! IQ4_XS: 8 sub-blocks of 32 with signed 6-bit scales and the values of IQ4_NL.

use super::levels::Table;
use super::{pack, put_half, super_block};

pub fn quantize(values: &[f32], block: &mut [u8]) {
    let found = super_block::scaled(values, 32, &Table, -32..=31);
    put_half(block, 0, found.d);
    block[2..8].fill(0);
    for j in 0..8 {
        let stored = (found.scales[j] + 32) as u8;
        block[2 + j / 4] |= (stored >> 4) << (2 * (j % 4));
        block[4 + j / 2] |= (stored & 15) << (4 * (j % 2));
        let nibbles = &mut block[8 + 16 * j..24 + 16 * j];
        pack::nibbles(&found.codes[32 * j..32 * j + 32], nibbles);
    }
}
