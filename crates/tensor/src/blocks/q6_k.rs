//! Q6_K: 256 elements in 16 sub-blocks of 16. 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed
//! sub-scales, scale d (half). Each half of 128 elements uses 64 low bytes and 32 high bytes.

use super::half_at;

/// Where the sub-scales and the scale d are.
pub const SUB_SCALES: usize = 192;
pub const SCALE: usize = 208;

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, SCALE);
    for (i, o) in out.iter_mut().enumerate() {
        let scale = block[SUB_SCALES + i / 16] as i8;
        *o = d * scale as f32 * (quant(block, i) as i32 - 32) as f32;
    }
}

/// The 6-bit value of element `i`, which stands for 32 less.
pub fn quant(block: &[u8], i: usize) -> u8 {
    let (half, quarter, lane) = (i / 128, i / 32 % 4, i % 32);
    let low = block[half * 64 + quarter % 2 * 32 + lane] >> (4 * (quarter / 2)) & 15;
    let high = block[128 + half * 32 + lane] >> (2 * quarter) & 3;
    low | high << 4
}
