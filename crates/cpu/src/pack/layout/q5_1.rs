//! Q5_1 panels: 16 scales, 16 minima, fifth bits, then nibbles.

use super::{Layout, bits, copy_halves, half_at, nibbles};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q5_0::five_bits;

pub struct Q5_1;

impl Q5_1 {
    pub const BITS: usize = 4 * PANEL;
    pub const NIBBLES: usize = Q5_1::BITS + bits::BYTES;
}

impl Layout for Q5_1 {
    const DTYPE: DType = DType::Q5_1;
    const LARGEST: i32 = 31;
    const BLOCK_BYTES: usize = Q5_1::NIBBLES + nibbles::BYTES;
    const OFFSETS: usize = 1;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        copy_halves(blocks, 0, out);
        copy_halves(blocks, 2, &mut out[2 * PANEL..]);
        let value = |r: usize, c| five_bits(&blocks[r][4..], c);
        nibbles::pack(|r, c| value(r, c) & 15, &mut out[Q5_1::NIBBLES..]);
        bits::pack(|r, c| value(r, c) >> 4, &mut out[Q5_1::BITS..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let low = nibbles::get(&block[Q5_1::NIBBLES..], row, column);
        let high = bits::get(&block[Q5_1::BITS..], row, column);
        (low | high << 4) as i32
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, row)
    }

    fn offset(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, PANEL + row)
    }
}
