//! Owns the place of scales that count for half a block: a byte for each of 16 rows, first half first.

use crate::pack::PANEL;

pub const BYTES: usize = 2 * PANEL;

/// Packs `value(row, half)`.
pub fn pack(value: impl Fn(usize, usize) -> u8, out: &mut [u8]) {
    for half in 0..2 {
        for row in 0..PANEL {
            out[PANEL * half + row] = value(row, half);
        }
    }
}

pub fn get(bytes: &[u8], row: usize, column: usize) -> u8 {
    bytes[PANEL * (column / 16) + row]
}
