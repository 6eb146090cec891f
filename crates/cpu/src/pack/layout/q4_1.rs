//! Q4_1 panels: 16 scales, 16 minima, then nibbles.

use super::{Layout, copy_halves, half_at, nibbles};
use crate::pack::PANEL;
use mettle_tensor::{DType, blocks};

pub struct Q4_1;

impl Q4_1 {
    pub const NIBBLES: usize = 4 * PANEL;
}

impl Layout for Q4_1 {
    const DTYPE: DType = DType::Q4_1;
    const LARGEST: i32 = 15;
    const BLOCK_BYTES: usize = Q4_1::NIBBLES + nibbles::BYTES;
    const OFFSETS: usize = 1;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        copy_halves(blocks, 0, out);
        copy_halves(blocks, 2, &mut out[2 * PANEL..]);
        let value = |r: usize, c| blocks::nibbles::get(&blocks[r][4..], c);
        nibbles::pack(value, &mut out[Q4_1::NIBBLES..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        nibbles::get(&block[Q4_1::NIBBLES..], row, column) as i32
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, row)
    }

    fn offset(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, PANEL + row)
    }
}
