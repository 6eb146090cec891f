//! Q3_K: 256 elements in 16 sub-blocks of 16. 32 bytes of high bits (run r of 32 elements at bit r), 64 bytes of bit pairs
//! as in Q2_K, 12 bytes of 6-bit sub-scales, scale d (half).

use super::half_at;

/// Where the scale d is.
pub const SCALE: usize = 108;

/// The signed scale (-32..32) of sub-block `j`: low nibbles in eight bytes, high bit pairs in four.
pub fn scale(block: &[u8], j: usize) -> i8 {
    let packed = &block[96..108];
    let low = packed[j % 8] >> (4 * (j / 8)) & 15;
    let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
    (low | high << 4) as i8 - 32
}

/// The signed 3-bit value (-4..4) of an element.
pub fn quant(block: &[u8], i: usize) -> i8 {
    let low = block[32 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
    let high = block[i % 32] >> (i / 32) & 1;
    (low | high << 2) as i8 - 4
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, SCALE);
    for (i, o) in out.iter_mut().enumerate() {
        *o = d * scale(block, i / 16) as f32 * quant(block, i) as f32;
    }
}
