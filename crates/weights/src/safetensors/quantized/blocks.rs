//! Owns the writing of the block types that quantized safetensors become.

use half::f16;

/// Columns of a block, of every type here.
pub const BLOCK: usize = 32;

/// Byte j holds column j in its low and column j + 16 in its high nibble.
fn put_nibbles(columns: &[u8], out: &mut [u8]) {
    let (low, high) = columns.split_at(BLOCK / 2);
    for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
        *out = low | high << 4;
    }
}

/// scale * q + offset in 4 bits.
pub fn q4_1(scale: f16, offset: f16, columns: &[u8], out: &mut [u8]) {
    out[..2].copy_from_slice(&scale.to_le_bytes());
    out[2..4].copy_from_slice(&offset.to_le_bytes());
    put_nibbles(columns, &mut out[4..]);
}

/// scale * q + offset in 8 bits.
pub fn affine8(scale: f16, offset: f16, columns: &[u8], out: &mut [u8]) {
    out[..2].copy_from_slice(&scale.to_le_bytes());
    out[2..4].copy_from_slice(&offset.to_le_bytes());
    out[4..].copy_from_slice(columns);
}

/// scale * (q - zero) in 4 bits.
pub fn zero4(scale: f16, zero: u8, columns: &[u8], out: &mut [u8]) {
    out[..2].copy_from_slice(&scale.to_le_bytes());
    out[2] = zero;
    put_nibbles(columns, &mut out[3..]);
}

/// scale * e4m3.
pub fn f8(scale: f32, columns: &[u8], out: &mut [u8]) {
    out[..4].copy_from_slice(&scale.to_le_bytes());
    out[4..].copy_from_slice(columns);
}
