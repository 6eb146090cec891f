//! Q4_K panels of 256 columns: eight d, eight dmin, then per block of 32 columns eight scales, eight minima and nibbles.

use super::nibbles;
use crate::pack::{BLOCK, PANEL, half_at};
use mettle_tensor::blocks::q4_k_scale_and_min;

pub const HEADER: usize = 4 * PANEL;
pub const BLOCK_BYTES: usize = 2 * PANEL + nibbles::BYTES;
pub const BYTES: usize = HEADER + 8 * BLOCK_BYTES;

pub fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
    let (header, out) = out.split_at_mut(HEADER);
    for (r, block) in blocks.iter().enumerate() {
        header[2 * r..2 * r + 2].copy_from_slice(&block[..2]);
        let min = 2 * PANEL + 2 * r;
        header[min..min + 2].copy_from_slice(&block[2..4]);
    }
    for (j, out) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        for (r, block) in blocks.iter().enumerate() {
            let (scale, min) = q4_k_scale_and_min(&block[4..16], j);
            out[r] = scale;
            out[PANEL + r] = min;
        }
        let value = |r: usize, c: usize| {
            let byte = blocks[r][16 + j / 2 * 32 + c];
            if j % 2 == 0 { byte & 15 } else { byte >> 4 }
        };
        nibbles::pack(value, &mut out[2 * PANEL..]);
    }
}

pub fn read_row(panel: &[u8], row: usize, out: &mut [f32]) {
    for (superblock, out) in panel
        .chunks_exact(BYTES)
        .zip(out.chunks_exact_mut(8 * BLOCK))
    {
        let (d, dmin) = (half_at(superblock, row), half_at(superblock, PANEL + row));
        let blocks = superblock[HEADER..].chunks_exact(BLOCK_BYTES);
        for (block, out) in blocks.zip(out.chunks_exact_mut(BLOCK)) {
            let (scale, min) = (d * block[row] as f32, dmin * block[PANEL + row] as f32);
            for (c, o) in out.iter_mut().enumerate() {
                *o = scale * quant(block, row, c) as f32 - min;
            }
        }
    }
}

pub fn quant(block: &[u8], row: usize, column: usize) -> i32 {
    nibbles::value(&block[2 * PANEL..], row, column) as i32
}
