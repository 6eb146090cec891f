//! Q5_K panels of 256 columns: as Q4_K, with fifth bits before the nibbles of each block.

use super::q4_k::pack_scales_and_mins;
use super::{Layout, Q4K, bits, copy_halves, nibbles};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q5_k;

pub struct Q5K;

impl Q5K {
    pub const BITS: usize = Q4K::NIBBLES;
    pub const NIBBLES: usize = Q5K::BITS + bits::BYTES;
}

impl Layout for Q5K {
    const DTYPE: DType = DType::Q5_K;
    const LARGEST: i32 = 31;
    const HEADER: usize = Q4K::HEADER;
    const BLOCK_BYTES: usize = Q5K::NIBBLES + nibbles::BYTES;
    const OFFSETS: usize = 1;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q5K::HEADER);
        copy_halves(blocks, 0, header);
        copy_halves(blocks, 2, &mut header[2 * PANEL..]);
        for (j, out) in out.chunks_exact_mut(Q5K::BLOCK_BYTES).enumerate() {
            pack_scales_and_mins(blocks, j, out);
            let value = |r: usize, c| q5_k::quant(blocks[r], 32 * j + c);
            nibbles::pack(|r, c| value(r, c) & 15, &mut out[Q5K::NIBBLES..]);
            bits::pack(|r, c| value(r, c) >> 4, &mut out[Q5K::BITS..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let low = nibbles::get(&block[Q5K::NIBBLES..], row, column);
        let high = bits::get(&block[Q5K::BITS..], row, column);
        (low | high << 4) as i32
    }

    fn scale(group: &[u8], block: &[u8], row: usize) -> f32 {
        Q4K::scale(group, block, row)
    }

    fn offset(group: &[u8], block: &[u8], row: usize) -> f32 {
        Q4K::offset(group, block, row)
    }
}
