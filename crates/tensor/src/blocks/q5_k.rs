//! Q5_K: 256 elements in 8 sub-blocks of 32. Scales and sub-scales as in Q4_K, 32 bytes of fifth bits (sub-block j at bit
//! j), 128 bytes of nibbles as in Q4_K.

use super::{half_at, q4_k};

/// The 5-bit value of an element.
pub fn quant(block: &[u8], i: usize) -> u8 {
    let high = block[16 + i % 32] >> (i / 32) & 1;
    q4_k::nibble(&block[48..], i) | high << 4
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (i, o) in out.iter_mut().enumerate() {
        let (scale, min) = q4_k::scale_and_min(&block[4..16], i / 32);
        *o = d * scale as f32 * quant(block, i) as f32 - dmin * min as f32;
    }
}
