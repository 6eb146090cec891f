//! IQ4_XS: 256 elements in 8 sub-blocks of 32. Scale d (half), 2 bytes with the high bit pairs and 4 bytes with the low
//! nibbles of the sub-scales, then 16 bytes of nibbles for each sub-block, each the number of a value of IQ4_NL.

use super::iq4_nl::VALUES;
use super::{half_at, nibbles};

/// The signed scale (-32..32) of sub-block `j`.
pub fn scale(block: &[u8], j: usize) -> i8 {
    let low = block[4 + j / 2] >> (4 * (j % 2)) & 15;
    let high = block[2 + j / 4] >> (2 * (j % 4)) & 3;
    (low | high << 4) as i8 - 32
}

/// The nibbles of sub-block `j`.
pub fn nibbles_of(block: &[u8], j: usize) -> &[u8] {
    &block[8 + 16 * j..24 + 16 * j]
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (j, out) in out.chunks_exact_mut(32).enumerate() {
        let scale = d * scale(block, j) as f32;
        for (i, o) in out.iter_mut().enumerate() {
            *o = scale * VALUES[nibbles::get(nibbles_of(block, j), i) as usize] as f32;
        }
    }
}
