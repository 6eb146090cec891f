//! Zero4 panels: 16 scales, 16 zero points (byte), then nibbles. `scale * (nibble - zero)` is computed as a nibble
//! with an offset, which is exact: 11 bits times 8.

use super::{Layout, copy_halves, half_at, nibbles};
use crate::pack::PANEL;
use mettle_tensor::{DType, blocks};

pub struct Zero4;

impl Zero4 {
    pub const ZEROS: usize = 2 * PANEL;
    pub const NIBBLES: usize = 3 * PANEL;
}

impl Layout for Zero4 {
    const DTYPE: DType = DType::Zero4;
    const LARGEST: i32 = 15;
    const BLOCK_BYTES: usize = Zero4::NIBBLES + nibbles::BYTES;
    const OFFSETS: usize = 1;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        copy_halves(blocks, 0, out);
        for (r, block) in blocks.iter().enumerate() {
            out[Zero4::ZEROS + r] = block[2];
        }
        let value = |r: usize, c| blocks::nibbles::get(&blocks[r][3..], c);
        nibbles::pack(value, &mut out[Zero4::NIBBLES..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        nibbles::get(&block[Zero4::NIBBLES..], row, column) as i32
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(block, row)
    }

    fn offset(_: &[u8], block: &[u8], row: usize) -> f32 {
        -(half_at(block, row) * block[Zero4::ZEROS + row] as f32)
    }
}
