//! Q5_0: scale d (half), 4 bytes with the fifth bit of column i at bit i, 16 bytes of nibbles.

use super::{half_at, nibbles};

/// The 5-bit value of a column from the 20 bytes of bits and nibbles.
pub fn five_bits(packed: &[u8], column: usize) -> u8 {
    let high = packed[column / 8] >> (column % 8) & 1;
    nibbles::get(&packed[4..], column) | high << 4
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, o) in out.iter_mut().enumerate() {
        *o = d * (five_bits(&block[2..], i) as i32 - 16) as f32;
    }
}
