//! Q5_0 panels: 16 scales, fifth bits, then nibbles.

use super::{Layout, bits, copy_halves, half_at, nibbles};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q5_0::five_bits;

pub struct Q5_0;

impl Q5_0 {
    pub const BITS: usize = 2 * PANEL;
    pub const NIBBLES: usize = Q5_0::BITS + bits::BYTES;
}

impl Layout for Q5_0 {
    const DTYPE: DType = DType::Q5_0;
    const LARGEST: i32 = 16;
    const BLOCK_BYTES: usize = Q5_0::NIBBLES + nibbles::BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        copy_halves(blocks, 0, out);
        let value = |r: usize, c| five_bits(&blocks[r][2..], c);
        nibbles::pack(|r, c| value(r, c) & 15, &mut out[Q5_0::NIBBLES..]);
        bits::pack(|r, c| value(r, c) >> 4, &mut out[Q5_0::BITS..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let low = nibbles::get(&block[Q5_0::NIBBLES..], row, column);
        let high = bits::get(&block[Q5_0::BITS..], row, column);
        (low | high << 4) as i32 - 16
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, row)
    }
}
