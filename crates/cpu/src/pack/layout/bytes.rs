//! Owns the order of bytes in a panel: eight chunks of four columns.

use crate::pack::{CHUNK, PANEL};

pub const BYTES: usize = 8 * CHUNK;

/// Packs 32 columns; `value(row, column)` gives each byte.
pub fn pack(value: impl Fn(usize, usize) -> u8, out: &mut [u8]) {
    for row in 0..PANEL {
        for column in 0..32 {
            out[place(row, column)] = value(row, column);
        }
    }
}

pub fn get(chunks: &[u8], row: usize, column: usize) -> u8 {
    chunks[place(row, column)]
}

fn place(row: usize, column: usize) -> usize {
    CHUNK * (column / 4) + 4 * row + column % 4
}
