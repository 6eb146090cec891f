//! Q4_1: scale d and minimum m (halves), 16 bytes of nibbles in the order of Q4_0.

use super::half_at;

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, byte) in block[4..20].iter().enumerate() {
        out[i] = d * (byte & 15) as f32 + m;
        out[i + 16] = d * (byte >> 4) as f32 + m;
    }
}
