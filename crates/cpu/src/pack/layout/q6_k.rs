//! Q6_K panels of 256 columns: 16 d, then per block of 32 columns sub-scales, bit pairs and nibbles.

use super::{Layout, bit_pairs, copy_halves, half_at, nibbles, sub_scales};
use crate::pack::PANEL;
use mettle_tensor::DType;
use mettle_tensor::blocks::q6_k;

pub struct Q6K;

impl Q6K {
    pub const PAIRS: usize = sub_scales::BYTES;
    pub const NIBBLES: usize = Q6K::PAIRS + bit_pairs::BYTES;
}

impl Layout for Q6K {
    const DTYPE: DType = DType::Q6_K;
    const LARGEST: i32 = 4096; // -32 * -128
    const HEADER: usize = 2 * PANEL;
    const BLOCK_BYTES: usize = Q6K::NIBBLES + nibbles::BYTES;

    fn pack(blocks: &[&[u8]; PANEL], out: &mut [u8]) {
        let (header, out) = out.split_at_mut(Q6K::HEADER);
        copy_halves(blocks, q6_k::SCALE, header);
        for (j, out) in out.chunks_exact_mut(Q6K::BLOCK_BYTES).enumerate() {
            sub_scales::pack(|r, half| blocks[r][q6_k::SUB_SCALES + 2 * j + half], out);
            let value = |r: usize, c| q6_k::quant(blocks[r], 32 * j + c);
            nibbles::pack(|r, c| value(r, c) & 15, &mut out[Q6K::NIBBLES..]);
            bit_pairs::pack(|r, c| value(r, c) >> 4, &mut out[Q6K::PAIRS..]);
        }
    }

    fn integer(block: &[u8], row: usize, column: usize) -> i32 {
        let scale = sub_scales::get(block, row, column) as i8;
        let low = nibbles::get(&block[Q6K::NIBBLES..], row, column);
        let high = bit_pairs::get(&block[Q6K::PAIRS..], row, column);
        scale as i32 * ((low | high << 4) as i32 - 32)
    }

    fn scale(group: &[u8], _: &[u8], row: usize) -> f32 {
        half_at(group, row)
    }
}
