//! F8 panels: per block of 32 columns 16 scales (f32), then column after column, 16 rows each.
//!
//! A float of 8 bits is one of 32 with the exponent's lowest four bits, 2^120 times too small: kernels shift it there. A
//! product is made 2^60 times larger, which rounds nothing, and the scales here make up for the rest; those of 2^68 and
//! more, which would overflow, become infinite. What is not a number has no place among floats so made: it makes the scale
//! of its row and block NaN instead.

use crate::pack::{BLOCK, PANEL};
use mettle_tensor::blocks::f8::e4m3;

pub struct F8;

impl F8 {
    /// What a float of 8 bits leaves of one of 32: sign, four bits of exponent, three of fraction.
    pub const BITS: i32 = 0x87f0_0000_u32 as i32;
    /// What products are made larger by.
    pub const LARGER: f32 = (1_u64 << 60) as f32;

    pub const VALUES: usize = 4 * PANEL;
    pub const BLOCK_BYTES: usize = F8::VALUES + BLOCK * PANEL;

    pub fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        for (r, block) in blocks.iter().enumerate() {
            let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
            let scale = match block[4..].iter().any(|byte| e4m3(*byte).is_nan()) {
                true => f32::NAN,
                false => F8::LARGER * scale,
            };
            out[4 * r..4 * r + 4].copy_from_slice(&scale.to_le_bytes());
            for (column, byte) in block[4..].iter().enumerate() {
                out[F8::VALUES + PANEL * column + r] = *byte;
            }
        }
    }

    pub fn scale(block: &[u8], row: usize) -> f32 {
        let scale = &block[4 * row..4 * row + 4];
        f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]])
    }

    /// What the scale is multiplied with.
    pub fn unscaled(block: &[u8], row: usize, column: usize) -> f32 {
        e4m3(block[F8::VALUES + PANEL * column + row]) / F8::LARGER
    }

    pub fn value(panel: &[u8], row: usize, column: usize) -> f32 {
        let block = &panel[column / BLOCK * F8::BLOCK_BYTES..];
        F8::scale(block, row) * F8::unscaled(block, row, column % BLOCK)
    }
}
