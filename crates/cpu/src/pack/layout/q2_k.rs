//! Q2_K panels of 256 columns: eight d, eight dmin, then per block of 32 columns sub-scales (low nibble) with sub-minima
//! (high nibble), and bit pairs.

use super::{Layout, bit_pairs, copy_halves, half_at, sub_scales};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q2_k;

pub struct Q2K;

impl Q2K {
    pub const PAIRS: usize = sub_scales::BYTES;
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
            sub_scales::pack(|r, half| blocks[r][2 * j + half], out);
            let value = |r: usize, c| q2_k::quant(blocks[r], 32 * j + c);
            bit_pairs::pack(value, &mut out[Q2K::PAIRS..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let scale = sub_scales::get(block, row, column) & 15;
        (scale * bit_pairs::get(&block[Q2K::PAIRS..], row, column)) as i32
    }

    fn scale(group: &[u8], _: &[u8], row: usize) -> f32 {
        half_at(group, row)
    }

    fn offset(group: &[u8], block: &[u8], row: usize, half: usize) -> f32 {
        let min = sub_scales::get(block, row, 16 * half) >> 4;
        -(half_at(group, PANEL + row) * min as f32)
    }
}
