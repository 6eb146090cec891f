//! Q3_K panels of 256 columns: eight d, then per block of 32 columns sub-scales, bit pairs, and bits that are set where 4 is
//! to be taken away.

use super::{Layout, bit_pairs, bits, copy_halves, half_at, sub_scales};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q3_k;

pub struct Q3K;

impl Q3K {
    pub const PAIRS: usize = sub_scales::BYTES;
    pub const BITS: usize = Q3K::PAIRS + bit_pairs::BYTES;
}

impl Layout for Q3K {
    const DTYPE: DType = DType::Q3_K;
    const HEADER: usize = 2 * PANEL;
    const BLOCK_BYTES: usize = Q3K::BITS + bits::BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q3K::HEADER);
        copy_halves(blocks, q3_k::SCALE, header);
        for (j, out) in out.chunks_exact_mut(Q3K::BLOCK_BYTES).enumerate() {
            sub_scales::pack(|r, half| q3_k::scale(blocks[r], 2 * j + half) as u8, out);
            let value = |r: usize, c| q3_k::quant(blocks[r], 32 * j + c);
            bit_pairs::pack(|r, c| value(r, c) as u8 & 3, &mut out[Q3K::PAIRS..]);
            bits::pack(|r, c| (value(r, c) < 0) as u8, &mut out[Q3K::BITS..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let scale = sub_scales::get(block, row, column) as i8;
        let low = bit_pairs::get(&block[Q3K::PAIRS..], row, column) as i32;
        let less = bits::get(&block[Q3K::BITS..], row, column) as i32;
        scale as i32 * (low - 4 * less)
    }

    fn scale(group: &[u8], _: &[u8], row: usize) -> f32 {
        half_at(group, row)
    }
}
