//! Q6_K panels of 256 columns: eight d, then per block of 32 columns eight pairs of scales, nibbles and bit pairs.

use super::nibbles;
use crate::pack::{BLOCK, PANEL, half_at};

pub const HEADER: usize = 2 * PANEL;
pub const HIGH: usize = 2 * PANEL + nibbles::BYTES;
pub const BLOCK_BYTES: usize = HIGH + 64;
pub const BYTES: usize = HEADER + 8 * BLOCK_BYTES;

pub fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
    let (header, out) = out.split_at_mut(HEADER);
    for (r, block) in blocks.iter().enumerate() {
        header[2 * r..2 * r + 2].copy_from_slice(&block[208..210]);
    }
    for (j, out) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        for (r, block) in blocks.iter().enumerate() {
            out[2 * r..2 * r + 2].copy_from_slice(&block[192 + 2 * j..194 + 2 * j]);
        }
        let value = |r: usize, c: usize| ggml_value(blocks[r], 32 * j + c);
        let (low, high) = out[2 * PANEL..].split_at_mut(nibbles::BYTES);
        nibbles::pack(|r, c| value(r, c) & 15, low);
        for h in 0..2 {
            for r in 0..PANEL {
                for i in 0..4 {
                    high[32 * h + 4 * r + i] = (0..4)
                        .map(|p| value(r, 16 * h + 4 * p + i) >> 4 << (2 * p))
                        .fold(0, |a, b| a | b);
                }
            }
        }
    }
}

/// The 6-bit value (0..64) of a column in a ggml block.
fn ggml_value(block: &[u8], column: usize) -> u8 {
    let (half, quarter, lane) = (column / 128, column / 32 % 4, column % 32);
    let low = block[half * 64 + quarter % 2 * 32 + lane];
    let low = if quarter < 2 { low & 15 } else { low >> 4 };
    let high = (block[128 + half * 32 + lane] >> (2 * quarter)) & 3;
    low | high << 4
}

/// The signed value (-32..32) of a column in a packed block of 32.
pub fn quant(block: &[u8], row: usize, column: usize) -> i32 {
    let low = nibbles::value(&block[2 * PANEL..HIGH], row, column);
    let byte = block[HIGH + 32 * (column / 16) + 4 * row + column % 4];
    let high = (byte >> (2 * (column / 4 % 4))) & 3;
    (low | high << 4) as i32 - 32
}

pub fn read_row(panel: &[u8], row: usize, out: &mut [f32]) {
    for (superblock, out) in panel
        .chunks_exact(BYTES)
        .zip(out.chunks_exact_mut(8 * BLOCK))
    {
        let d = half_at(superblock, row);
        let blocks = superblock[HEADER..].chunks_exact(BLOCK_BYTES);
        for (block, out) in blocks.zip(out.chunks_exact_mut(BLOCK)) {
            for (c, o) in out.iter_mut().enumerate() {
                let scale = block[2 * row + c / 16] as i8;
                *o = d * scale as f32 * quant(block, row, c) as f32;
            }
        }
    }
}
