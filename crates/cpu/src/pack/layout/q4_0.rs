//! Q4_0 panels: eight scales, then nibbles.

use super::nibbles;
use crate::pack::{BLOCK, PANEL, half_at};

pub const NIBBLES: usize = 2 * PANEL;
pub const BYTES: usize = NIBBLES + nibbles::BYTES;

pub fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
    for (r, block) in blocks.iter().enumerate() {
        out[2 * r..2 * r + 2].copy_from_slice(&block[..2]);
    }
    let value = |r: usize, c| nibbles::ggml_value(&blocks[r][2..], c);
    nibbles::pack(value, &mut out[NIBBLES..]);
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
    nibbles::value(&block[NIBBLES..], row, column) as i32 - 8
}
