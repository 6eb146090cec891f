//! Affine8: scale and offset (halves), 32 unsigned bytes. Our own, for 8-bit MLX weights.

use super::half_at;

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (scale, offset) = (half_at(block, 0), half_at(block, 2));
    for (o, byte) in out.iter_mut().zip(&block[4..36]) {
        *o = scale * *byte as f32 + offset;
    }
}
