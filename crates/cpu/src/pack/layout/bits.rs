//! Owns the order of single bits in a panel: one chunk for 32 columns. Column 4k + j of row r is bit k of byte
//! 4r + j.

use crate::pack::{CHUNK, PANEL};

pub const BYTES: usize = CHUNK;

/// Packs 32 columns; `value(row, column)` gives each bit.
pub fn pack(value: impl Fn(usize, usize) -> u8, out: &mut [u8]) {
    out[..BYTES].fill(0);
    for row in 0..PANEL {
        for column in 0..32 {
            out[4 * row + column % 4] |= value(row, column) << (column / 4);
        }
    }
}

pub fn get(chunk: &[u8], row: usize, column: usize) -> u8 {
    chunk[4 * row + column % 4] >> (column / 4) & 1
}
