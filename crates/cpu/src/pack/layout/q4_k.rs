//! Q4_K panels of 256 columns: 16 d, 16 dmin, then per block of 32 columns 16 scales, 16 minima and nibbles.

use super::{Layout, copy_halves, half_at, nibbles};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q4_k;

pub struct Q4K;

impl Q4K {
    pub const NIBBLES: usize = 2 * PANEL;
}

impl Layout for Q4K {
    const DTYPE: DType = DType::Q4_K;
    const LARGEST: i32 = 15;
    const HEADER: usize = 4 * PANEL;
    const BLOCK_BYTES: usize = Q4K::NIBBLES + nibbles::BYTES;
    const OFFSETS: usize = 1;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q4K::HEADER);
        copy_halves(blocks, 0, header);
        copy_halves(blocks, 2, &mut header[2 * PANEL..]);
        for (j, out) in out.chunks_exact_mut(Q4K::BLOCK_BYTES).enumerate() {
            pack_scales_and_mins(blocks, j, out);
            let value = |r: usize, c| q4_k::nibble(&blocks[r][16..], 32 * j + c);
            nibbles::pack(value, &mut out[Q4K::NIBBLES..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        nibbles::get(&block[Q4K::NIBBLES..], row, column) as i32
    }

    // Both products are exact: 11 bits times 6.
    fn scale(group: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(group, row) * block[row] as f32
    }

    fn offset(group: &[u8], block: &[u8], row: usize) -> f32 {
        -(half_at(group, PANEL + row) * block[PANEL + row] as f32)
    }
}

/// A byte each for the scales, then the minima, of sub-block `j` of all rows.
pub fn pack_scales_and_mins(blocks: &[&[u8]; PANEL], j: usize, out: &mut [u8]) {
    for (r, block) in blocks.iter().enumerate() {
        let (scale, min) = q4_k::scale_and_min(&block[4..16], j);
        out[r] = scale;
        out[PANEL + r] = min;
    }
}
