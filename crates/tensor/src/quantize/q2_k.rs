//! Q2_K: 16 sub-blocks of 16 with 4-bit scales and minima.

use super::{pack, put_half, super_block};
use crate::blocks::q2_k::SCALES;

pub fn quantize(values: &[f32], block: &mut [u8]) {
    let found = super_block::affine(values, 16, 3.0, 15);
    for (byte, (scale, min)) in block.iter_mut().zip(found.scales.iter().zip(found.mins)) {
        *byte = scale | min << 4;
    }
    pack::bit_pairs(&found.codes, &mut block[16..80]);
    put_half(block, SCALES, found.d);
    put_half(block, SCALES + 2, found.dmin);
}
