//! Q2_K panels of 256 columns: 16 d, 16 dmin, then per block of 32 columns two chunks of 2-bit values, 16 bytes of sub-scales
//! (the last half's in the low nibble) and 16 of sub-minima (the first half's in the low nibble). Byte 4r + j of chunk k holds
//! columns 8k + j and 8k + 4 + j of row r, of the first half in bits 0 and 4, of the last in bits 2 and 6: masks alone give the
//! last half four times, which its sub-scale makes up for.

use super::{Layout, copy_halves, half_at};
use crate::pack::{CHUNK, PANEL};
use mettle_tensor::DType;
use mettle_tensor::blocks::q2_k;

pub struct Q2K;

impl Q2K {
    pub const SCALES: usize = 2 * CHUNK;
    pub const MINS: usize = Q2K::SCALES + PANEL;
}

impl Layout for Q2K {
    const DTYPE: DType = DType::Q2_K;
    const HEADER: usize = 4 * PANEL;
    const BLOCK_BYTES: usize = Q2K::MINS + PANEL;
    const OFFSETS: usize = 2;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q2K::HEADER);
        copy_halves(blocks, q2_k::SCALES, header);
        copy_halves(blocks, q2_k::SCALES + 2, &mut header[2 * PANEL..]);
        for (j, out) in out.chunks_exact_mut(Q2K::BLOCK_BYTES).enumerate() {
            for (r, block) in blocks.iter().enumerate() {
                let (scale, min) = q2_k::scale_and_min(block, 2 * j);
                let (last_scale, last_min) = q2_k::scale_and_min(block, 2 * j + 1);
                out[Q2K::SCALES + r] = last_scale | scale << 4;
                out[Q2K::MINS + r] = min | last_min << 4;
            }
            out[..Q2K::SCALES].fill(0);
            for (r, block) in blocks.iter().enumerate() {
                for column in 0..32 {
                    let (byte, bit) = place(r, column);
                    out[byte] |= q2_k::quant(block, 32 * j + column) << bit;
                }
            }
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let scale = block[Q2K::SCALES + row] >> (4 - 4 * (column / 16)) & 15;
        let (byte, bit) = place(row, column);
        (scale * (block[byte] >> bit & 3)) as i32
    }

    fn scale(group: &[u8], _: &[u8], row: usize) -> f32 {
        half_at(group, row)
    }

    fn offset(_: &[u8], block: &[u8], row: usize, half: usize) -> f32 {
        (block[Q2K::MINS + row] >> (4 * half) & 15) as f32
    }

    fn offset_unit(group: &[u8], row: usize) -> f32 {
        -half_at(group, PANEL + row)
    }
}

/// The byte of a block and the lowest bit that a value has.
fn place(row: usize, column: usize) -> (usize, usize) {
    let (half, column) = (column / 16, column % 16);
    let chunk = CHUNK * (column / 8);
    (
        chunk + 4 * row + column % 4,
        4 * (column / 4 % 2) + 2 * half,
    )
}
