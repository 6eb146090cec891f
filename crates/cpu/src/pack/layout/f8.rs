//! F8 panels: per block of 32 columns eight scales (f32), then column after column, eight rows each.
//!
//! A float of 8 bits is a half with the exponent's lowest four bits: kernels widen it so, and get a 256th of it. The scales
//! here make up for that; those of 2^120 and more, which would overflow, become infinite. What is not a number has no place
//! among halves so made: it makes the scale of its row and block NaN instead.

use crate::pack::{BLOCK, PANEL};
use mettle_tensor::blocks::f8::e4m3;

pub struct F8;

impl F8 {
    pub const VALUES: usize = 4 * PANEL;
    pub const BLOCK_BYTES: usize = F8::VALUES + BLOCK * PANEL;

    pub fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        for (r, block) in blocks.iter().enumerate() {
            let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
            let scale = match block[4..].iter().any(|byte| e4m3(*byte).is_nan()) {
                true => f32::NAN,
                false => 256.0 * scale,
            };
            out[4 * r..4 * r + 4].copy_from_slice(&scale.to_le_bytes());
            for (column, byte) in block[4..].iter().enumerate() {
                out[F8::VALUES + PANEL * column + r] = *byte;
            }
        }
    }

    pub fn value(panel: &[u8], row: usize, column: usize) -> f32 {
        let block = &panel[column / BLOCK * F8::BLOCK_BYTES..];
        let scale = &block[4 * row..4 * row + 4];
        let scale = f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]);
        scale * (e4m3(block[F8::VALUES + PANEL * (column % BLOCK) + row]) / 256.0)
    }
}
