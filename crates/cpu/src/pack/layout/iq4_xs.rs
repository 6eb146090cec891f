//! IQ4_XS panels of 256 columns: 16 d, then per block of 32 columns 16 signed scales and nibbles, each the number of a
//! value.

use super::{Layout, copy_halves, half_at, nibbles};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::{self, iq4_nl, iq4_xs};

pub struct Iq4Xs;

impl Iq4Xs {
    pub const NIBBLES: usize = PANEL;
}

impl Layout for Iq4Xs {
    const DTYPE: DType = DType::IQ4_XS;
    const LARGEST: i32 = 127;
    const HEADER: usize = 2 * PANEL;
    const BLOCK_BYTES: usize = Iq4Xs::NIBBLES + nibbles::BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Iq4Xs::HEADER);
        copy_halves(blocks, 0, header);
        for (j, out) in out.chunks_exact_mut(Iq4Xs::BLOCK_BYTES).enumerate() {
            for (r, block) in blocks.iter().enumerate() {
                out[r] = iq4_xs::scale(block, j) as u8;
            }
            let number = |r: usize, c| blocks::nibbles::get(iq4_xs::nibbles_of(blocks[r], j), c);
            nibbles::pack(number, &mut out[Iq4Xs::NIBBLES..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let number = nibbles::get(&block[Iq4Xs::NIBBLES..], row, column);
        iq4_nl::VALUES[number as usize] as i32
    }

    // Exact: 11 bits times 6.
    fn scale(group: &[u8], block: &[u8], row: usize) -> f32 {
        half_at(group, row) * block[row] as i8 as f32
    }
}
