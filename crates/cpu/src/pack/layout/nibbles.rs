//! Owns the order of 4-bit values in a panel: a chunk for eight columns.

use crate::pack::{CHUNK, PANEL};

pub const BYTES: usize = 4 * CHUNK;

/// Packs 32 columns; `value(row, column)` gives each 4-bit value.
pub fn pack(value: impl Fn(usize, usize) -> u8, out: &mut [u8]) {
    pack_chunks(4, value, out);
}

/// The same for eight times as many columns as there are chunks.
pub fn pack_chunks(chunks: usize, value: impl Fn(usize, usize) -> u8, out: &mut [u8]) {
    for chunk in 0..chunks {
        for row in 0..PANEL {
            for j in 0..4 {
                let low = value(row, 8 * chunk + j);
                let high = value(row, 8 * chunk + 4 + j);
                out[CHUNK * chunk + 4 * row + j] = low | high << 4;
            }
        }
    }
}

pub fn get(chunks: &[u8], row: usize, column: usize) -> u8 {
    let byte = chunks[CHUNK * (column / 8) + 4 * row + column % 4];
    if column % 8 < 4 { byte & 15 } else { byte >> 4 }
}
