//! Q6_K: 256 elements in 16 sub-blocks of 16. 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed
//! sub-scales, scale d (half). Each half of 128 elements uses 64 low bytes and 32 high bytes.

use super::half_at;

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 208);
    for (i, o) in out.iter_mut().enumerate() {
        let scale = block[192 + i / 16] as i8;
        *o = d * scale as f32 * quant(block, i) as f32;
    }
}

/// The signed 6-bit value of element `i`.
fn quant(block: &[u8], i: usize) -> i32 {
    let (half, quarter, lane) = (i / 128, i / 32 % 4, i % 32);
    let low_byte = block[half * 64 + quarter % 2 * 32 + lane];
    let low = if quarter < 2 {
        low_byte & 15
    } else {
        low_byte >> 4
    };
    let high = (block[128 + half * 32 + lane] >> (2 * quarter)) & 3;
    (low | high << 4) as i32 - 32
}
