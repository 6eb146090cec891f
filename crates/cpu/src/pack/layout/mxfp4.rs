//! MXFP4 panels: 16 halved scales as bf16, which holds powers of two down to the subnormal ones, then nibbles, each the
//! number of a doubled value.

use super::{Layout, nibbles};
use crate::pack::PANEL;
use half::bf16;
use mettle_tensor::DType;
use mettle_tensor::blocks::{self, mxfp4};

pub struct Mxfp4;

impl Mxfp4 {
    pub const NIBBLES: usize = 2 * PANEL;
}

impl Layout for Mxfp4 {
    const DTYPE: DType = DType::MXFP4;
    const LARGEST: i32 = 12;
    const BLOCK_BYTES: usize = Mxfp4::NIBBLES + nibbles::BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        for (r, block) in blocks.iter().enumerate() {
            let scale = bf16::from_f32(mxfp4::half_scale(block[0]));
            out[2 * r..2 * r + 2].copy_from_slice(&scale.to_le_bytes());
        }
        let number = |r: usize, c| blocks::nibbles::get(&blocks[r][1..], c);
        nibbles::pack(number, &mut out[Mxfp4::NIBBLES..]);
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let number = nibbles::get(&block[Mxfp4::NIBBLES..], row, column);
        mxfp4::DOUBLED[number as usize] as i32
    }

    fn scale(_: &[u8], block: &[u8], row: usize) -> f32 {
        bf16::from_le_bytes([block[2 * row], block[2 * row + 1]]).to_f32()
    }
}
