//! Affine8 panels: 16 scales, 16 offsets, then bytes. Values are kept 128 lower, as signed bytes; what that takes
//! away is part of the offset in products.

use super::{Layout, bytes, copy_halves, half_at};
use crate::pack::PANEL;
use mettle_tensor::DType;

pub struct Affine8;

impl Affine8 {
    pub const VALUES: usize = 4 * PANEL;
}

impl Layout for Affine8 {
    const DTYPE: DType = DType::Affine8;
    const LARGEST: i32 = 128;
    const BLOCK_BYTES: usize = Affine8::VALUES + bytes::BYTES;
    const OFFSETS: usize = 1;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        copy_halves(blocks, 0, out);
        copy_halves(blocks, 2, &mut out[2 * PANEL..]);
        let value = |r: usize, c| blocks[r][4 + c] ^ 0x80;
        bytes::pack(value, &mut out[Affine8::VALUES..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        bytes::get(&block[Affine8::VALUES..], row, column) as i8 as i32
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, row)
    }

    fn offset(_: &[u8], block: &[u8], row: usize) -> f32 {
        // The product is exact, so fusing it changes nothing.
        128.0 * half_at(block, row) + half_at(block, PANEL + row)
    }

    fn value(block: &[u8], row: usize, column: usize) -> f32 {
        let stored = Affine8::integer(block, row, column) + 128;
        half_at(block, row) * stored as f32 + half_at(block, PANEL + row)
    }
}
