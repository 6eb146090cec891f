//! IQ4_NL: scale d (half), 16 bytes of nibbles, each the number of a value.

use super::{half_at, nibbles};

/// What the nibbles stand for: steps that grow away from zero, as weights thin out.
pub const VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, o) in out.iter_mut().enumerate() {
        *o = d * VALUES[nibbles::get(&block[2..], i) as usize] as f32;
    }
}
