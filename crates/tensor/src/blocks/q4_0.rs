//! Q4_0: scale d (half), 16 bytes of nibbles.

use super::{half_at, nibbles};

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, o) in out.iter_mut().enumerate() {
        *o = d * (nibbles::get(&block[2..], i) as i32 - 8) as f32;
    }
}
