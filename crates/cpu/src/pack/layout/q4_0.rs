//! Q4_0 panels: 16 scales, then nibbles.

use super::{Layout, copy_halves, half_at, nibbles};
use crate::pack::PANEL;
use mettle_tensor::{DType, blocks};

pub struct Q4_0;

impl Q4_0 {
    pub const NIBBLES: usize = 2 * PANEL;
}

impl Layout for Q4_0 {
    const DTYPE: DType = DType::Q4_0;
    const LARGEST: i32 = 8;
    const BLOCK_BYTES: usize = Q4_0::NIBBLES + nibbles::BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        copy_halves(blocks, 0, out);
        let value = |r: usize, c| blocks::nibbles::get(&blocks[r][2..], c);
        nibbles::pack(value, &mut out[Q4_0::NIBBLES..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        nibbles::get(&block[Q4_0::NIBBLES..], row, column) as i32 - 8
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, row)
    }
}
