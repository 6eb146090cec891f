//! Owns the order of 3-bit values in a panel: three chunks for 32 columns. Byte 4r + j of chunk h
//! holds columns 8h + j and 8h + 4 + j of row r in its lowest six bits. The upper two bits of all three are columns 24 + j
//! (two bits in chunk 0, the highest in chunk 1) and 28 + j (two bits in chunk 2, the highest in chunk 1).

use crate::pack::{CHUNK, PANEL};

pub const BYTES: usize = 3 * CHUNK;

/// Packs 32 columns; `value(row, column)` gives each 3-bit value.
pub fn pack(value: impl Fn(usize, usize) -> u8, out: &mut [u8]) {
    for row in 0..PANEL {
        for j in 0..4 {
            let of = |four: usize| value(row, 4 * four + j);
            let upper = [of(6) & 3, of(6) >> 2 | of(7) >> 2 << 1, of(7) & 3];
            for chunk in 0..3 {
                let lower = of(2 * chunk) | of(2 * chunk + 1) << 3;
                out[CHUNK * chunk + 4 * row + j] = lower | upper[chunk] << 6;
            }
        }
    }
}

pub fn get(chunks: &[u8], row: usize, column: usize) -> u8 {
    let byte = |chunk: usize| chunks[CHUNK * chunk + 4 * row + column % 4];
    match column / 4 {
        6 => byte(0) >> 6 | (byte(1) >> 6 & 1) << 2,
        7 => byte(2) >> 6 | byte(1) >> 7 << 2,
        four => byte(four / 2) >> (3 * (four % 2)) & 7,
    }
}
