//! Q4_K: 256 elements in 8 sub-blocks of 32. Scales d and dmin (halves), 12 bytes of 6-bit sub-scales and sub-minima,
//! 128 bytes of nibbles: each run of 32 bytes holds sub-block 2j in its low nibbles and 2j + 1 in its high ones.

use super::half_at;

/// The 6-bit scale and minimum of sub-block `j` from the 12 packed bytes.
pub fn scale_and_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let scale = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4);
        let min = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
        (scale, min)
    }
}

/// The 4-bit value of an element from the 128 bytes of nibbles.
pub fn nibble(nibbles: &[u8], i: usize) -> u8 {
    nibbles[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (i, o) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(&block[4..16], i / 32);
        *o = d * scale as f32 * nibble(&block[16..], i) as f32 - dmin * min as f32;
    }
}
