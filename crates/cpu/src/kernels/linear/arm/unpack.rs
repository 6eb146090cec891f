//! Quantized weights as registers of signed bytes: one implementation per type, for few and for many rows alike.
//!
//! A register holds four columns of four rows, as the panels do. Every type's integers fit a byte; the sub-scales of Q3_K and
//! Q6_K multiply the exact product of 16 columns, which keeps the sum below 2 * 128 * 16 * 32 * 16256 < 2^31.

use super::dot::Dot;
use super::pieces::*;
use crate::pack::PANEL;
use crate::pack::layout::{
    Affine8, Iq4Nl, Iq4Xs, Layout, Mxfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0,
    Zero4,
};
use mettle_tensor::blocks::{iq4_nl, mxfp4};
use std::arch::aarch64::*;

pub trait Unpack: Groups {
    /// Whether each half of a block has an integer scale of its own.
    const HAS_SUB_SCALES: bool = false;

    /// Scales of the eight rows.
    ///
    /// # Safety
    /// `group` is a whole group in this type's layout, and `block` one of its blocks (so for all).
    unsafe fn scales(group: *const u8, block: *const u8) -> Eight;

    /// Offsets of the eight rows and a half of the columns.
    ///
    /// # Safety
    /// As for `scales`, and `half < 2`.
    unsafe fn offsets(_: *const u8, _: *const u8, _half: usize) -> Eight {
        unreachable!("this type has none")
    }

    /// What is added to a row's sum for the offsets: times the sum of all integers, and of the first half's.
    ///
    /// # Safety
    /// As for `scales`.
    #[inline(always)]
    unsafe fn both_offsets(group: *const u8, block: *const u8) -> [Eight; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let none = [vdupq_n_f32(0.0); 2];
            match Self::OFFSETS {
                0 => [none, none],
                1 => [Self::offsets(group, block, 1), none],
                _ => {
                    let last = Self::offsets(group, block, 1);
                    let first = Self::offsets(group, block, 0);
                    [
                        last,
                        [vsubq_f32(first[0], last[0]), vsubq_f32(first[1], last[1])],
                    ]
                }
            }
        }
    }

    /// Columns `8c..8c + 8` of a block: the first four of rows 0..4, of rows 4..8, the last four of rows 0..4, of 4..8.
    ///
    /// # Safety
    /// As for `scales`, and `c < 4`.
    unsafe fn eight(block: *const u8, c: usize) -> [int8x16_t; 4];

    /// The same in the order that `D` multiplies.
    ///
    /// # Safety
    /// As for `eight`, and the processor has what `D` needs.
    #[inline(always)]
    unsafe fn arranged<D: Dot>(block: *const u8, c: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { D::arrange(Self::eight(block, c)) }
    }

    /// The scales of columns `16 * half..16 * half + 16`.
    ///
    /// # Safety
    /// As for `scales`, and `half < 2`.
    unsafe fn sub_scales(_: *const u8, _: usize) -> [int32x4_t; 2] {
        unreachable!("this type has none")
    }
}

/// Where blocks lie: packed, as a `Layout` says, or unpacked into the cache.
pub trait Groups {
    /// Blocks that share a header, and their bytes with it.
    const GROUP_BLOCKS: usize;
    const GROUP_BYTES: usize;
    /// Bytes before the first block of a group, and of each block.
    const HEADER: usize;
    const BLOCK_BYTES: usize;
    /// As in `Layout`.
    const OFFSETS: usize;
}

impl<L: Layout> Groups for L {
    const GROUP_BLOCKS: usize = L::GROUP_BLOCKS;
    const GROUP_BYTES: usize = L::GROUP_BYTES;
    const HEADER: usize = L::HEADER;
    const BLOCK_BYTES: usize = L::BLOCK_BYTES;
    const OFFSETS: usize = L::OFFSETS;
}

/// The methods of a type, each the caller's promise handed on.
macro_rules! unpack {
    ($type:ident {
        scales: |$g:pat_param, $b:pat_param| $scales:expr,
        $(offsets: |$og:pat_param, $ob:pat_param, $half:pat_param| $offsets:expr,)?
        $(sub_scales: |$sb:ident, $sub_half:ident| $sub_scales:expr,)?
        eight: |$block:ident, $c:ident| $eight:expr,
    }) => {
        impl Unpack for $type {
            $(const HAS_SUB_SCALES: bool = !stringify!($sub_half).is_empty();)?

            #[inline(always)]
            unsafe fn scales($g: *const u8, $b: *const u8) -> Eight {
                // SAFETY: the caller's promise.
                unsafe { $scales }
            }

            $(#[inline(always)]
            unsafe fn offsets($og: *const u8, $ob: *const u8, $half: usize) -> Eight {
                // SAFETY: the caller's promise.
                unsafe { $offsets }
            })?

            $(#[inline(always)]
            unsafe fn sub_scales($sb: *const u8, $sub_half: usize) -> [int32x4_t; 2] {
                // SAFETY: the caller's promise.
                unsafe { $sub_scales }
            })?

            #[inline(always)]
            unsafe fn eight($block: *const u8, $c: usize) -> [int8x16_t; 4] {
                // SAFETY: the caller's promise.
                unsafe { $eight }
            }
        }
    };
}

unpack!(Q4_0 {
    scales: |_, block| halves(block),
    eight: |block, c| minus(nibbles(block.add(Q4_0::NIBBLES), c), 8),
});

unpack!(Q4_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, c| minus(nibbles(block.add(Q4_1::NIBBLES), c), 0),
});

unpack!(Q5_0 {
    scales: |_, block| halves(block),
    eight: |block, c| {
        let high = bits(block.add(Q5_0::BITS), c);
        minus(or(nibbles(block.add(Q5_0::NIBBLES), c), high), 16)
    },
});

unpack!(Q5_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, c| {
        let high = bits(block.add(Q5_1::BITS), c);
        minus(or(nibbles(block.add(Q5_1::NIBBLES), c), high), 0)
    },
});

unpack!(Q8_0 {
    scales: |_, block| halves(block),
    eight: |block, c| four_registers(block.add(Q8_0::VALUES + 64 * c)),
});

unpack!(Affine8 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| {
        let (scale, offset) = (halves(block), halves(block.add(2 * PANEL)));
        // Exact products, so that fusing them changes nothing.
        [
            vfmaq_n_f32(offset[0], scale[0], 128.0),
            vfmaq_n_f32(offset[1], scale[1], 128.0),
        ]
    },
    eight: |block, c| four_registers(block.add(Affine8::VALUES + 64 * c)),
});

unpack!(Zero4 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| negative(times(halves(block), bytes(block.add(Zero4::ZEROS)))),
    eight: |block, c| minus(nibbles(block.add(Zero4::NIBBLES), c), 0),
});

unpack!(Q2K {
    scales: |group, _| halves(group),
    offsets: |group, block, half| {
        let mins = nibbles_of_half(block.add(Q2K::MINS), half);
        negative(times(halves(group.add(2 * PANEL)), widened(mins)))
    },
    eight: |block, c| {
        // At most 3 * 15: a byte holds the product.
        let scales = nibbles_of_half(block, c / 2);
        let scales = [spread(scales, 0), spread(scales, 4)];
        let mut values = bit_pairs(block.add(Q2K::PAIRS), c);
        for i in 0..4 {
            values[i] = vmulq_u8(values[i], scales[i % 2]);
        }
        minus(values, 0)
    },
});

unpack!(Q3K {
    scales: |group, _| halves(group),
    offsets: |group, block, half| {
        let lowered = halves(group);
        let lowered = [vmulq_n_f32(lowered[0], -4.0), vmulq_n_f32(lowered[1], -4.0)];
        times(lowered, signed_bytes(block.add(PANEL * half)))
    },
    sub_scales: |block, half| signed_scales(block, half),
    eight: |block, c| minus(triples(block.add(Q3K::TRIPLES), c), 0),
});

unpack!(Q4K {
    scales: |group, block| times(halves(group), bytes(block)),
    offsets: |group, block, _| {
        negative(times(halves(group.add(2 * PANEL)), bytes(block.add(PANEL))))
    },
    eight: |block, c| minus(nibbles(block.add(Q4K::NIBBLES), c), 0),
});

unpack!(Q5K {
    scales: |group, block| Q4K::scales(group, block),
    offsets: |group, block, half| Q4K::offsets(group, block, half),
    eight: |block, c| {
        let high = bits(block.add(Q5K::BITS), c);
        minus(or(nibbles(block.add(Q5K::NIBBLES), c), high), 0)
    },
});

unpack!(Q6K {
    scales: |group, _| halves(group),
    sub_scales: |block, half| signed_scales(block, half),
    eight: |block, c| {
        let high = bit_pairs(block.add(Q6K::PAIRS), c).map(|pairs| vshlq_n_u8::<4>(pairs));
        minus(or(nibbles(block.add(Q6K::NIBBLES), c), high), 32)
    },
});

unpack!(Iq4Nl {
    scales: |_, block| halves(block),
    eight: |block, c| look_up(&iq4_nl::VALUES, nibbles(block.add(Iq4Nl::NIBBLES), c)),
});

unpack!(Iq4Xs {
    scales: |group, block| times(halves(group), signed_bytes(block)),
    eight: |block, c| look_up(&iq4_nl::VALUES, nibbles(block.add(Iq4Xs::NIBBLES), c)),
});

unpack!(Mxfp4 {
    scales: |_, block| brain_halves(block),
    eight: |block, c| look_up(&mxfp4::DOUBLED, nibbles(block.add(Mxfp4::NIBBLES), c)),
});
