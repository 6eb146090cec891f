//! Q2_K: 256 elements in 16 sub-blocks of 16. 16 bytes of 4-bit sub-scales (low) and sub-minima (high), 64 bytes of bit
//! pairs, scales d and dmin (halves). Each half of 128 elements uses 32 bytes, its runs of 32 elements one pair of bits each.

use super::half_at;

/// Scales d and dmin are here and two bytes further.
pub const SCALES: usize = 80;

/// The 4-bit scale and minimum of sub-block `j`.
pub fn scale_and_min(block: &[u8], j: usize) -> (u8, u8) {
    (block[j] & 15, block[j] >> 4)
}

/// The 2-bit value of an element.
pub fn quant(block: &[u8], i: usize) -> u8 {
    block[16 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, SCALES), half_at(block, SCALES + 2));
    for (i, o) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(block, i / 16);
        *o = d * scale as f32 * quant(block, i) as f32 - dmin * min as f32;
    }
}
