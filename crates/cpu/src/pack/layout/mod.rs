//! Owns what a panel is made of: one file per type says how it is laid out, packed and read back.
//!
//! What lies in a block lies in the order in which kernels read it. A processor that reads ahead expects the next line: with
//! the fifth bits behind the nibbles, and so read before their last, Q5_1 came at 27 GB/s instead of 33 (one Zen 4 core).

mod affine8;
mod bit_pairs;
mod bits;
mod bytes;
pub mod dense;
mod f8;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nibbles;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod sub_scales;
mod triples;
mod zero4;

pub use affine8::Affine8;
pub use f8::F8;
pub use iq4_nl::Iq4Nl;
pub use iq4_xs::Iq4Xs;
pub use mxfp4::Mxfp4;
pub use q2_k::Q2K;
pub use q3_k::Q3K;
pub use q4_0::Q4_0;
pub use q4_1::Q4_1;
pub use q4_k::Q4K;
pub use q5_0::Q5_0;
pub use q5_1::Q5_1;
pub use q5_k::Q5K;
pub use q6_k::Q6K;
pub use q8_0::Q8_0;
pub use zero4::Zero4;

use super::{BLOCK, PANEL};
use mettle_tensor::DType;

/// A type whose weights are integers: `scale * integer`, or `scale * integer + offset`. A group is as many columns of 16
/// rows as a block of the file has; it starts with what its blocks of 32 columns share.
pub trait Layout {
    const DTYPE: DType;
    /// The largest magnitude of an `integer`.
    const LARGEST: i32;
    /// Bytes that the blocks of a group share, at its start.
    const HEADER: usize = 0;
    const BLOCK_BYTES: usize;
    const GROUP_BLOCKS: usize = Self::DTYPE.block_len() / BLOCK;
    const GROUP_BYTES: usize = Self::HEADER + Self::GROUP_BLOCKS * Self::BLOCK_BYTES;
    /// Whether kernels add up the products of a group before they scale them. Scales are the group's then.
    const SCALES_GROUPS: bool = false;
    /// Offsets of a row: none, one a block, or 16 a group, one for every 16 columns. Those are integers of 4 bits times the
    /// group's unit, and multiplied as integers with the sums of as many activations.
    const OFFSETS: usize = 0;
    /// What kernels know to do with the two.
    const IS_KNOWN: () = assert!(
        matches!(
            (Self::OFFSETS, Self::SCALES_GROUPS),
            (0, _) | (1, false) | (16, true)
        ) && (!Self::SCALES_GROUPS || Self::GROUP_BLOCKS == 8)
    );
    /// A block's products with activations, which are 16256 at the most, add up in 32 bits.
    const FITS: () = assert!((Self::LARGEST as i64) * 16_256 * (BLOCK as i64) < 1 << 31);

    /// Packs one block of the file for each row.
    fn pack(blocks: &[&[u8]; PANEL], group: &mut [u8]);

    /// The integer of a column, sub-scales multiplied in: 13 bits at the most.
    fn integer(block: &[u8], row: usize, column: usize) -> i32;

    fn scale(group: &[u8], block: &[u8], row: usize) -> f32;

    fn offset(_group: &[u8], _block: &[u8], _row: usize) -> f32 {
        unreachable!("{} has no offset of a block", Self::DTYPE)
    }

    /// The offset of a group's columns `16 * sixteen..`, as an integer.
    fn offset_of_sixteen(_group: &[u8], _row: usize, _sixteen: usize) -> i32 {
        unreachable!("{} has no offsets of a group", Self::DTYPE)
    }

    /// What those are multiples of.
    fn offset_unit(_group: &[u8], _row: usize) -> f32 {
        unreachable!("{} has no unit of offsets", Self::DTYPE)
    }

    /// The exact value of a group's column, as the file's format defines it.
    fn value(group: &[u8], row: usize, column: usize) -> f32 {
        let block = &group[Self::HEADER + column / BLOCK * Self::BLOCK_BYTES..];
        let integer = Self::integer(block, row, column % BLOCK);
        let value = Self::scale(group, block, row) * integer as f32;
        match Self::OFFSETS {
            0 => value,
            1 => value + Self::offset(group, block, row),
            _ => {
                let offset = Self::offset_of_sixteen(group, row, column / 16);
                value + Self::offset_unit(group, row) * offset as f32
            }
        }
    }
}

/// `$run` with `$layout` standing for the layout of an integer type, or `$dense` for the types that take f32.
macro_rules! with_layout {
    ($dtype:expr, $layout:ident => $run:expr, dense => $dense:expr) => {
        with_layout!(@ $dtype, $layout => $run, dense => $dense,
            Q4_0: Q4_0, Q4_1: Q4_1, Q5_0: Q5_0, Q5_1: Q5_1, Q8_0: Q8_0, Q2_K: Q2K, Q3_K: Q3K, Q4_K: Q4K, Q5_K: Q5K,
            Q6_K: Q6K, IQ4_NL: Iq4Nl, IQ4_XS: Iq4Xs, MXFP4: Mxfp4, Affine8: Affine8, Zero4: Zero4)
    };
    (@ $dtype:expr, $layout:ident => $run:expr, dense => $dense:expr, $($name:ident: $type:ident),*) => {
        match $dtype {
            $(mettle_tensor::DType::$name => {
                type $layout = $crate::pack::layout::$type;
                $run
            })*
            mettle_tensor::DType::F32
            | mettle_tensor::DType::F16
            | mettle_tensor::DType::BF16
            | mettle_tensor::DType::F8 => $dense,
        }
    };
}
pub(crate) use with_layout;

/// The half at `index` of an array of halves.
pub fn half_at(bytes: &[u8], index: usize) -> f32 {
    mettle_tensor::blocks::half_at(bytes, 2 * index)
}

/// Copies the half at byte `at` of each row's block.
fn copy_halves(blocks: &[&[u8]; PANEL], at: usize, out: &mut [u8]) {
    for (r, block) in blocks.iter().enumerate() {
        out[2 * r..2 * r + 2].copy_from_slice(&block[at..at + 2]);
    }
}
