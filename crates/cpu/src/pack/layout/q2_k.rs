//! Q2_K panels of 256 columns: eight d, eight dmin, then per block of 32 columns eight bytes of sub-scales and eight of
//! sub-minima (the first half's in the low nibble), and bit pairs.

use super::{Layout, bit_pairs, copy_halves, half_at};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q2_k;

pub struct Q2K;

impl Q2K {
    pub const MINS: usize = PANEL;
    pub const PAIRS: usize = 2 * PANEL;
}

impl Layout for Q2K {
    const DTYPE: DType = DType::Q2_K;
    const HEADER: usize = 4 * PANEL;
    const BLOCK_BYTES: usize = Q2K::PAIRS + bit_pairs::BYTES;
    const OFFSETS: usize = 2;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q2K::HEADER);
        copy_halves(blocks, q2_k::SCALES, header);
        copy_halves(blocks, q2_k::SCALES + 2, &mut header[2 * PANEL..]);
        for (j, out) in out.chunks_exact_mut(Q2K::BLOCK_BYTES).enumerate() {
            for (r, block) in blocks.iter().enumerate() {
                let (scale, min) = q2_k::scale_and_min(block, 2 * j);
                let (last_scale, last_min) = q2_k::scale_and_min(block, 2 * j + 1);
                out[r] = scale | last_scale << 4;
                out[Q2K::MINS + r] = min | last_min << 4;
            }
            let value = |r: usize, c| q2_k::quant(blocks[r], 32 * j + c);
            bit_pairs::pack(value, &mut out[Q2K::PAIRS..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let scale = block[row] >> (4 * (column / 16)) & 15;
        (scale * bit_pairs::get(&block[Q2K::PAIRS..], row, column)) as i32
    }

    fn scale(group: &[u8], _: &[u8], row: usize) -> f32 {
        half_at(group, row)
    }

    fn offset(group: &[u8], block: &[u8], row: usize, half: usize) -> f32 {
        let min = block[Q2K::MINS + row] >> (4 * half) & 15;
        -(half_at(group, PANEL + row) * min as f32)
    }
}
