//! Q5_1: scale d and minimum m (halves), then bits and nibbles as in Q5_0.

use super::half_at;
use super::q5_0::five_bits;

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, o) in out.iter_mut().enumerate() {
        *o = d * five_bits(&block[4..], i) as f32 + m;
    }
}
