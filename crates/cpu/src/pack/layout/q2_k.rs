//! Q2_K panels of 256 columns: 16 d, 16 dmin, 16 sub-minima of each row as two chunks of nibbles, then per block of 32 columns
//! two chunks of 2-bit values and 16 bytes of sub-scales (the last half's in the low nibble). Byte 4r + j of chunk k holds
//! columns 8k + j and 8k + 4 + j of row r, of the first half in bits 0 and 2, of the last in bits 4 and 6: a shift by two and
//! masks give the last half 16 times, and a mask gives its sub-scale or 16 times the first half's.

use super::{Layout, copy_halves, half_at, nibbles};
use crate::pack::{CHUNK, PANEL};
use mettle_tensor::DType;
use mettle_tensor::blocks::q2_k;

pub struct Q2K;

impl Q2K {
    pub const MINS: usize = 4 * PANEL;
    pub const SCALES: usize = 2 * CHUNK;
}

impl Layout for Q2K {
    const DTYPE: DType = DType::Q2_K;
    const LARGEST: i32 = 45; // 3 * 15
    const HEADER: usize = Q2K::MINS + 2 * CHUNK;
    const BLOCK_BYTES: usize = Q2K::SCALES + PANEL;
    const SCALES_GROUPS: bool = true;
    const OFFSETS: usize = 16;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q2K::HEADER);
        copy_halves(blocks, q2_k::SCALES, header);
        copy_halves(blocks, q2_k::SCALES + 2, &mut header[2 * PANEL..]);
        let min = |r: usize, sixteen| q2_k::scale_and_min(blocks[r], sixteen).1;
        nibbles::pack_chunks(2, min, &mut header[Q2K::MINS..]);
        for (j, out) in out.chunks_exact_mut(Q2K::BLOCK_BYTES).enumerate() {
            out[..Q2K::SCALES].fill(0);
            for (r, block) in blocks.iter().enumerate() {
                let scale = |half| q2_k::scale_and_min(block, 2 * j + half).0;
                out[Q2K::SCALES + r] = scale(1) | scale(0) << 4;
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

    fn offset_of_sixteen(group: &[u8], row: usize, sixteen: usize) -> i32 {
        nibbles::get(&group[Q2K::MINS..], row, sixteen) as i32
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
        2 * (column / 4 % 2) + 4 * half,
    )
}
