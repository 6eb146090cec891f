//! Q4_1: scale d and minimum m (halves), 16 bytes of nibbles.

use super::{half_at, nibbles};

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, o) in out.iter_mut().enumerate() {
        *o = d * nibbles::get(&block[4..], i) as f32 + m;
    }
}
