//! Q3_K panels of 256 columns: 16 d, then per block of 32 columns sub-scales and 3-bit values, which are kept 4 higher, as
//! unsigned ones.

use super::{Layout, copy_halves, half_at, sub_scales, triples};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q3_k;

pub struct Q3K;

impl Q3K {
    pub const TRIPLES: usize = sub_scales::BYTES;
}

impl Layout for Q3K {
    const DTYPE: DType = DType::Q3_K;
    const LARGEST: i32 = 128; // -4 * -32
    const HEADER: usize = 2 * PANEL;
    const BLOCK_BYTES: usize = Q3K::TRIPLES + triples::BYTES;
    const SCALES_GROUPS: bool = true;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q3K::HEADER);
        copy_halves(blocks, q3_k::SCALE, header);
        for (j, out) in out.chunks_exact_mut(Q3K::BLOCK_BYTES).enumerate() {
            sub_scales::pack(|r, half| q3_k::scale(blocks[r], 2 * j + half) as u8, out);
            let value = |r: usize, c| (q3_k::quant(blocks[r], 32 * j + c) + 4) as u8;
            triples::pack(value, &mut out[Q3K::TRIPLES..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let scale = sub_scales::get(block, row, column) as i8;
        scale as i32 * (triples::get(&block[Q3K::TRIPLES..], row, column) as i32 - 4)
    }

    fn scale(group: &[u8], _: &[u8], row: usize) -> f32 {
        half_at(group, row)
    }
}
