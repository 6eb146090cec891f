//! MXFP4: a power of two (e8m0), 16 bytes of nibbles, each a float of 4 bits (e2m1).

use super::nibbles;

/// What the nibbles stand for, doubled so that all are integers.
pub const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of the scale. The two smallest are subnormal; all have one bit, so that a bf16 holds them.
pub fn half_scale(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        normal => (normal as u32 - 1) << 23,
    })
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let scale = half_scale(block[0]);
    for (i, o) in out.iter_mut().enumerate() {
        *o = scale * DOUBLED[nibbles::get(&block[1..], i) as usize] as f32;
    }
}
