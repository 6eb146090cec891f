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

/// Functions are of eight rows of a panel, from row `r` on: 0 or 8.
pub trait Unpack: Groups {
    /// Whether each half of a block has an integer scale of its own.
    const HAS_SUB_SCALES: bool = false;

    /// Scales of the rows.
    ///
    /// # Safety
    /// `group` is a whole group in this type's layout, and `block` one of its blocks (so for all).
    unsafe fn scales(group: *const u8, block: *const u8, r: usize) -> Eight;

    /// Offsets of the rows.
    ///
    /// # Safety
    /// As for `scales`.
    unsafe fn offsets(_: *const u8, _: *const u8, _r: usize) -> Eight {
        unreachable!("this type has none")
    }

    /// Eight of the 16 offsets of a group, the first or the last, as `arranged` has columns.
    ///
    /// # Safety
    /// As for `arranged`, and `c < 2`.
    unsafe fn arranged_offsets<D: Dot>(_: *const u8, _c: usize, _r: usize) -> [int8x16_t; 4] {
        unreachable!("this type has none")
    }

    /// What those are multiples of.
    ///
    /// # Safety
    /// As for `scales`.
    unsafe fn offset_units(_: *const u8, _r: usize) -> Eight {
        unreachable!("this type has none")
    }

    /// Columns `8c..8c + 8` of a block, as `Columns` says.
    ///
    /// # Safety
    /// As for `scales`, and `c < 4`.
    unsafe fn eight(block: *const u8, c: usize, r: usize) -> [int8x16_t; 4];

    /// The same in the order that `D` multiplies.
    ///
    /// # Safety
    /// As for `eight`, and the processor has what `D` needs.
    #[inline(always)]
    unsafe fn arranged<D: Dot>(block: *const u8, c: usize, r: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { D::arrange(Self::eight(block, c, r)) }
    }

    /// The scales of columns `16 * half..16 * half + 16`.
    ///
    /// # Safety
    /// As for `scales`, and `half < 2`.
    unsafe fn sub_scales(_: *const u8, _: usize, _r: usize) -> [int32x4_t; 2] {
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
    const SCALES_GROUPS: bool;
}

impl<L: Layout> Groups for L {
    const GROUP_BLOCKS: usize = L::GROUP_BLOCKS;
    const GROUP_BYTES: usize = L::GROUP_BYTES;
    const HEADER: usize = L::HEADER;
    const BLOCK_BYTES: usize = L::BLOCK_BYTES;
    const OFFSETS: usize = L::OFFSETS;
    const SCALES_GROUPS: bool = L::SCALES_GROUPS;
}

/// The methods of a type, each the caller's promise handed on.
macro_rules! unpack {
    ($type:ident {
        scales: |$g:pat_param, $b:pat_param, $sr:ident| $scales:expr,
        $(offsets: |$og:pat_param, $ob:pat_param, $or:ident| $offsets:expr,)?
        $(offsets_at: $at:expr, units: |$ug:ident, $our:ident| $units:expr,)?
        $(sub_scales: |$sb:ident, $sub_half:ident, $ur:ident| $sub_scales:expr,)?
        eight: |$block:ident, $c:ident, $r:ident| $eight:expr,
    }) => {
        impl Unpack for $type {
            $(const HAS_SUB_SCALES: bool = !stringify!($sub_half).is_empty();)?

            #[inline(always)]
            unsafe fn scales($g: *const u8, $b: *const u8, $sr: usize) -> Eight {
                // SAFETY: the caller's promise.
                unsafe { $scales }
            }

            $(#[inline(always)]
            unsafe fn offsets($og: *const u8, $ob: *const u8, $or: usize) -> Eight {
                // SAFETY: the caller's promise.
                unsafe { $offsets }
            })?

            $(#[inline(always)]
            unsafe fn arranged_offsets<D: Dot>(group: *const u8, c: usize, r: usize) -> [int8x16_t; 4] {
                // SAFETY: the caller's promise.
                unsafe { D::arrange(minus(nibbles(group.add($at), c, r), 0)) }
            }

            #[inline(always)]
            unsafe fn offset_units($ug: *const u8, $our: usize) -> Eight {
                // SAFETY: the caller's promise.
                unsafe { $units }
            })?

            $(#[inline(always)]
            unsafe fn sub_scales($sb: *const u8, $sub_half: usize, $ur: usize) -> [int32x4_t; 2] {
                // SAFETY: the caller's promise.
                unsafe { $sub_scales }
            })?

            #[inline(always)]
            unsafe fn eight($block: *const u8, $c: usize, $r: usize) -> [int8x16_t; 4] {
                // SAFETY: the caller's promise.
                unsafe { $eight }
            }
        }
    };
}

unpack!(Q4_0 {
    scales: |_, block, r| halves(block, r),
    eight: |block, c, r| minus(nibbles(block.add(Q4_0::NIBBLES), c, r), 8),
});

unpack!(Q4_1 {
    scales: |_, block, r| halves(block, r),
    offsets: |_, block, r| halves(block.add(2 * PANEL), r),
    eight: |block, c, r| minus(nibbles(block.add(Q4_1::NIBBLES), c, r), 0),
});

unpack!(Q5_0 {
    scales: |_, block, r| halves(block, r),
    eight: |block, c, r| {
        let high = bits(block.add(Q5_0::BITS), c, r);
        minus(or(nibbles(block.add(Q5_0::NIBBLES), c, r), high), 16)
    },
});

unpack!(Q5_1 {
    scales: |_, block, r| halves(block, r),
    offsets: |_, block, r| halves(block.add(2 * PANEL), r),
    eight: |block, c, r| {
        let high = bits(block.add(Q5_1::BITS), c, r);
        minus(or(nibbles(block.add(Q5_1::NIBBLES), c, r), high), 0)
    },
});

unpack!(Q8_0 {
    scales: |_, block, r| halves(block, r),
    eight: |block, c, r| byte_chunks(block.add(Q8_0::VALUES), c, r),
});

unpack!(Affine8 {
    scales: |_, block, r| halves(block, r),
    offsets: |_, block, r| {
        let (scale, offset) = (halves(block, r), halves(block.add(2 * PANEL), r));
        // Exact products, so that fusing them changes nothing.
        [
            vfmaq_n_f32(offset[0], scale[0], 128.0),
            vfmaq_n_f32(offset[1], scale[1], 128.0),
        ]
    },
    eight: |block, c, r| byte_chunks(block.add(Affine8::VALUES), c, r),
});

unpack!(Zero4 {
    scales: |_, block, r| halves(block, r),
    offsets: |_, block, r| negative(times(halves(block, r), bytes(block.add(Zero4::ZEROS), r))),
    eight: |block, c, r| minus(nibbles(block.add(Zero4::NIBBLES), c, r), 0),
});

unpack!(Q2K {
    scales: |group, _, r| halves(group, r),
    offsets_at: Q2K::MINS,
    units: |group, r| negative(halves(group.add(2 * PANEL), r)),
    eight: |block, c, r| {
        // At most 3 * 15: a byte holds the product.
        let scales = nibbles_of(block.add(Q2K::SCALES), c < 2, r);
        let scales = [spread(scales, 0), spread(scales, 4)];
        let mut values = pairs_at(chunk(block, c % 2, r), 4 * (c / 2), 2);
        for i in 0..4 {
            values[i] = vmulq_u8(values[i], scales[i % 2]);
        }
        minus(values, 0)
    },
});

unpack!(Q3K {
    scales: |group, _, r| halves(group, r),
    sub_scales: |block, half, r| signed_scales(block, half, r),
    eight: |block, c, r| minus(triples(block.add(Q3K::TRIPLES), c, r), 4),
});

unpack!(Q4K {
    scales: |group, block, r| times(halves(group, r), bytes(block, r)),
    offsets: |group, block, r| {
        negative(times(
            halves(group.add(2 * PANEL), r),
            bytes(block.add(PANEL), r),
        ))
    },
    eight: |block, c, r| minus(nibbles(block.add(Q4K::NIBBLES), c, r), 0),
});

unpack!(Q5K {
    scales: |group, block, r| Q4K::scales(group, block, r),
    offsets: |group, block, r| Q4K::offsets(group, block, r),
    eight: |block, c, r| {
        let high = bits(block.add(Q5K::BITS), c, r);
        minus(or(nibbles(block.add(Q5K::NIBBLES), c, r), high), 0)
    },
});

unpack!(Q6K {
    scales: |group, _, r| halves(group, r),
    sub_scales: |block, half, r| signed_scales(block, half, r),
    eight: |block, c, r| {
        let high = bit_pairs(block.add(Q6K::PAIRS), c, r).map(|pairs| vshlq_n_u8::<4>(pairs));
        minus(or(nibbles(block.add(Q6K::NIBBLES), c, r), high), 32)
    },
});

unpack!(Iq4Nl {
    scales: |_, block, r| halves(block, r),
    eight: |block, c, r| look_up(&iq4_nl::VALUES, nibbles(block.add(Iq4Nl::NIBBLES), c, r)),
});

unpack!(Iq4Xs {
    scales: |group, block, r| times(halves(group, r), signed_bytes(block, r)),
    eight: |block, c, r| look_up(&iq4_nl::VALUES, nibbles(block.add(Iq4Xs::NIBBLES), c, r)),
});

unpack!(Mxfp4 {
    scales: |_, block, r| brain_halves(block, r),
    eight: |block, c, r| look_up(&mxfp4::DOUBLED, nibbles(block.add(Mxfp4::NIBBLES), c, r)),
});
