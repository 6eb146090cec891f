//! Owns the order of 2-bit values in a panel: two chunks for 32 columns. Chunk h holds columns
//! 16h + 4p + j of row r in bits 2p of byte 4r + j.

use crate::pack::{CHUNK, PANEL};

pub const BYTES: usize = 2 * CHUNK;

/// Packs 32 columns; `value(row, column)` gives each 2-bit value.
pub fn pack(value: impl Fn(usize, usize) -> u8, out: &mut [u8]) {
    out[..BYTES].fill(0);
    for row in 0..PANEL {
        for column in 0..32 {
            out[place(row, column)] |= value(row, column) << (2 * (column / 4 % 4));
        }
    }
}

pub fn get(chunks: &[u8], row: usize, column: usize) -> u8 {
    chunks[place(row, column)] >> (2 * (column / 4 % 4)) & 3
}

fn place(row: usize, column: usize) -> usize {
    CHUNK * (column / 16) + 4 * row + column % 4
}
