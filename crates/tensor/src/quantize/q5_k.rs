//! Q5_K: 8 sub-blocks of 32 with 6-bit scales and minima.

use super::{pack, put_half, super_block};

pub fn quantize(values: &[f32], block: &mut [u8]) {
    let found = super_block::affine(values, 32, 31.0, 63);
    put_half(block, 0, found.d);
    put_half(block, 2, found.dmin);
    pack::scales_and_mins(&found.scales, &found.mins, &mut block[4..16]);
    pack::single_bits(&found.codes, 4, &mut block[16..48]);
    pack::paired_nibbles(&found.codes, &mut block[48..]);
}
