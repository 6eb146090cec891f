//! IQ4_NL panels: as Q4_0, but a nibble is the number of a value.

use super::{Layout, Q4_0, nibbles};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::iq4_nl;

pub struct Iq4Nl;

impl Iq4Nl {
    pub const NIBBLES: usize = Q4_0::NIBBLES;
}

impl Layout for Iq4Nl {
    const DTYPE: DType = DType::IQ4_NL;
    const LARGEST: i32 = 127;
    const BLOCK_BYTES: usize = Q4_0::BLOCK_BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        Q4_0::pack(blocks, out);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let number = nibbles::get(&block[Iq4Nl::NIBBLES..], row, column);
        iq4_nl::VALUES[number as usize] as i32
    }

    fn scale(group: &[u8], block: &[u8], row: usize) -> f32 {
        Q4_0::scale(group, block, row)
    }
}
