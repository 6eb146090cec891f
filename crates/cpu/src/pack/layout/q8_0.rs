//! Q8_0 panels: 16 scales, then bytes.

use super::{Layout, bytes, copy_halves, half_at};
use crate::pack::PANEL;
use mettle_tensor::DType;

pub struct Q8_0;

impl Q8_0 {
    pub const VALUES: usize = 2 * PANEL;
}

impl Layout for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const LARGEST: i32 = 128;
    const BLOCK_BYTES: usize = Q8_0::VALUES + bytes::BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        copy_halves(blocks, 0, out);
        bytes::pack(|r, c| blocks[r][2 + c], &mut out[Q8_0::VALUES..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        bytes::get(&block[Q8_0::VALUES..], row, column) as i8 as i32
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, row)
    }
}
