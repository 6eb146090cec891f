//! Q8_0 panels: eight scales, then eight chunks of bytes.

use crate::pack::{BLOCK, PANEL, half_at};

pub const QUANTS: usize = 2 * PANEL;
pub const BYTES: usize = QUANTS + BLOCK * PANEL;

pub fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
    for (r, block) in blocks.iter().enumerate() {
        out[2 * r..2 * r + 2].copy_from_slice(&block[..2]);
        for chunk in 0..8 {
            let at = QUANTS + 32 * chunk + 4 * r;
            out[at..at + 4].copy_from_slice(&block[2 + 4 * chunk..6 + 4 * chunk]);
        }
    }
}

pub fn read_row(panel: &[u8], row: usize, out: &mut [f32]) {
    for (block, out) in panel.chunks_exact(BYTES).zip(out.chunks_exact_mut(BLOCK)) {
        let d = half_at(block, row);
        for (c, o) in out.iter_mut().enumerate() {
            *o = d * quant(block, row, c) as f32;
        }
    }
}

pub fn quant(block: &[u8], row: usize, column: usize) -> i32 {
    (block[QUANTS + 32 * (column / 4) + 4 * row + column % 4] as i8) as i32
}
