//! Zero4: scale (half), the integer that stands for zero (byte), 16 bytes of nibbles. Our own, for AWQ and GPTQ weights.

use super::{half_at, nibbles};

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (scale, zero) = (half_at(block, 0), block[2] as i32);
    for (i, o) in out.iter_mut().enumerate() {
        *o = scale * (nibbles::get(&block[3..], i) as i32 - zero) as f32;
    }
}
