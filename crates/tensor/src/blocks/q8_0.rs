//! Q8_0: scale d (half), 32 signed bytes.

use super::half_at;

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (o, byte) in out.iter_mut().zip(&block[2..34]) {
        *o = d * (*byte as i8) as f32;
    }
}
