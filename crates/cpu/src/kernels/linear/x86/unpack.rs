//! Quantized weights as registers of 16-bit integers: one implementation per type, for few and for many rows alike.
//!
//! A register holds two columns of each of the eight rows of a panel, in the pairs that `place_of` puts side by side in
//! the activations. 16 bits hold every type's integers multiplied by their sub-scale (at most 128 * 32), and `madd` adds
//! products with 15-bit activations in 32 bits: all exact.

use super::pieces::*;
use crate::pack::PANEL;
use crate::pack::layout::{
    Affine8, Iq4Nl, Iq4Xs, Layout, Mxfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0,
    Zero4,
};
use mettle_tensor::blocks::{iq4_nl, mxfp4};
use std::arch::x86_64::*;

/// A type's values as unsigned bytes.
pub struct ByteValues {
    /// How large they are; 0 for types whose values are no such bytes.
    pub bits: u32,
    /// What is to be taken from each.
    pub less: i32,
}

pub trait Unpack: Layout {
    const BYTES: ByteValues = ByteValues { bits: 0, less: 0 };

    /// Columns `8C..8C + 8` of a block as `BYTES` says.
    ///
    /// # Safety
    /// As for `eight`.
    unsafe fn bytes<const C: usize>(_: *const u8) -> Pair {
        unreachable!("{} has no bytes", Self::DTYPE)
    }

    /// Whether each half of the columns of a block of `BYTES` has a sub-scale.
    const SUB_SCALED: bool = false;

    /// Sub-scales of the eight rows and a half of the columns.
    ///
    /// # Safety
    /// As for `offsets`.
    unsafe fn sub_scale(_: *const u8, _half: usize) -> __m256i {
        unreachable!("{} has no sub-scales", Self::DTYPE)
    }

    /// Scales of the eight rows.
    ///
    /// # Safety
    /// `group` is a whole group in this type's layout and `block` one of its blocks; the processor has AVX2, FMA and F16C
    /// (so for all).
    unsafe fn scales(group: *const u8, block: *const u8) -> __m256;

    /// Offsets of the eight rows and a half of the columns.
    ///
    /// # Safety
    /// As for `scales`, and `half < 2`.
    unsafe fn offsets(_: *const u8, _: *const u8, _half: usize) -> __m256 {
        unreachable!("{} has no offsets", Self::DTYPE)
    }

    /// Columns `8C..8C + 8` of a block in the pairs (0, 2), (1, 3), (4, 6), (5, 7). A constant, since loops over it are not
    /// always unrolled, and shifts by what is known only at run time cost much.
    ///
    /// # Safety
    /// As for `scales`, and `C < 4`.
    unsafe fn eight<const C: usize>(block: *const u8) -> [__m256i; 4];
}

/// Values as unsigned bytes that are so much higher.
const fn raised(values: &[i8; 16], by: u8) -> [i8; 16] {
    let mut raised = *values;
    let mut i = 0;
    while i < 16 {
        raised[i] = (values[i] as u8).wrapping_add(by) as i8;
        i += 1;
    }
    raised
}

/// What `Linear` adds to a row's sum for a block's offsets: times the sum of all integers, and of the first half's.
///
/// # Safety
/// As for `Unpack::scales`.
#[inline(always)]
pub unsafe fn both_offsets<W: Unpack>(group: *const u8, block: *const u8) -> (__m256, __m256) {
    // SAFETY: the caller's promise.
    unsafe {
        let none = _mm256_setzero_ps();
        match W::OFFSETS {
            0 => (none, none),
            1 => (W::offsets(group, block, 1), none),
            _ => {
                let last = W::offsets(group, block, 1);
                let first = W::offsets(group, block, 0);
                (last, _mm256_sub_ps(first, last))
            }
        }
    }
}

/// The methods of a type, each the caller's promise handed on.
macro_rules! unpack {
    ($type:ident {
        scales: |$g:pat_param, $b:pat_param| $scales:expr,
        $(offsets: |$og:pat_param, $ob:pat_param, $half:pat_param| $offsets:expr,)?
        eight: |$block:ident, $c:ident| $eight:expr,
        $(bytes: $bits:literal less $less:literal |$bb:ident, $bc:ident| $bytes:expr,)?
        $(sub_scale: |$sb:ident, $sh:ident| $sub_scale:expr,)?
    }) => {
        impl Unpack for $type {
            $(const BYTES: ByteValues = ByteValues {
                bits: $bits,
                less: $less,
            };

            #[inline(always)]
            unsafe fn bytes<const $bc: usize>($bb: *const u8) -> Pair {
                // SAFETY: the caller's promise.
                unsafe { $bytes }
            })?

            $(const SUB_SCALED: bool = true;

            #[inline(always)]
            unsafe fn sub_scale($sb: *const u8, $sh: usize) -> __m256i {
                // SAFETY: the caller's promise.
                unsafe { $sub_scale }
            })?

            #[inline(always)]
            unsafe fn scales($g: *const u8, $b: *const u8) -> __m256 {
                // SAFETY: the caller's promise.
                unsafe { $scales }
            }

            $(#[inline(always)]
            unsafe fn offsets($og: *const u8, $ob: *const u8, $half: usize) -> __m256 {
                // SAFETY: the caller's promise.
                unsafe { $offsets }
            })?

            #[inline(always)]
            unsafe fn eight<const $c: usize>($block: *const u8) -> [__m256i; 4] {
                // SAFETY: the caller's promise.
                unsafe { $eight }
            }
        }
    };
}

unpack!(Q4_0 {
    scales: |_, block| halves(block),
    eight: |block, C| widen_signed(minus(nibble_pair(block.add(Q4_0::NIBBLES), C), 8)),
    bytes: 4 less 8 |block, C| nibble_pair(block.add(Q4_0::NIBBLES), C),
});

unpack!(Q4_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, C| nibbles(block.add(Q4_1::NIBBLES), C),
    bytes: 4 less 0 |block, C| nibble_pair(block.add(Q4_1::NIBBLES), C),
});

unpack!(Q5_0 {
    scales: |_, block| halves(block),
    eight: |block, C| widen_signed(minus(fives::<C>(block, Q5_0::NIBBLES, Q5_0::BITS), 16)),
    bytes: 5 less 16 |block, C| fives::<C>(block, Q5_0::NIBBLES, Q5_0::BITS),
});

unpack!(Q5_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, C| widen_unsigned(fives::<C>(block, Q5_1::NIBBLES, Q5_1::BITS)),
    bytes: 5 less 0 |block, C| fives::<C>(block, Q5_1::NIBBLES, Q5_1::BITS),
});

unpack!(Q8_0 {
    scales: |_, block| halves(block),
    eight: |block, C| widen_signed(byte_pair(block.add(Q8_0::VALUES), C)),
    bytes: 8 less 128 |block, C| raise(byte_pair(block.add(Q8_0::VALUES), C)),
});

unpack!(Affine8 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| {
        let lowered = _mm256_mul_ps(halves(block), _mm256_set1_ps(128.0));
        _mm256_add_ps(lowered, halves(block.add(2 * PANEL)))
    },
    eight: |block, C| widen_signed(byte_pair(block.add(Affine8::VALUES), C)),
    bytes: 8 less 128 |block, C| raise(byte_pair(block.add(Affine8::VALUES), C)),
});

unpack!(Zero4 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| {
        let zeros = unsigned_bytes(block.add(Zero4::ZEROS));
        negative(_mm256_mul_ps(halves(block), zeros))
    },
    eight: |block, C| nibbles(block.add(Zero4::NIBBLES), C),
    bytes: 4 less 0 |block, C| nibble_pair(block.add(Zero4::NIBBLES), C),
});

unpack!(Q2K {
    scales: |group, _| halves(group),
    offsets: |group, block, half| {
        let mins = _mm256_cvtepi32_ps(nibbles_of_half(block.add(Q2K::MINS), half));
        _mm256_mul_ps(negative(halves(group.add(2 * PANEL))), mins)
    },
    eight: |block, C| {
        let scales = sub_scales(block, 0);
        let scales = if C < 2 {
            scales
        } else {
            _mm256_srli_epi16::<4>(scales)
        };
        widen_scaled(bit_pairs(block.add(Q2K::PAIRS), C), low_nibbles(scales))
    },
    bytes: 2 less 0 |block, C| bit_pairs(block.add(Q2K::PAIRS), C),
    sub_scale: |block, half| nibbles_of_half(block, half),
});

unpack!(Q3K {
    scales: |group, _| halves(group),
    offsets: |group, block, half| {
        let lowered = _mm256_mul_ps(halves(group), _mm256_set1_ps(-4.0));
        _mm256_mul_ps(lowered, signed_bytes(block.add(PANEL * half)))
    },
    eight: |block, C| widen_scaled(triples::<C>(block.add(Q3K::TRIPLES)), sub_scales(block, C)),
    bytes: 3 less 0 |block, C| triples::<C>(block.add(Q3K::TRIPLES)),
    sub_scale: |block, half| sub_scale_of_half(block, half),
});

unpack!(Q4K {
    scales: |group, block| _mm256_mul_ps(halves(group), unsigned_bytes(block)),
    offsets: |group, block, _| {
        let mins = unsigned_bytes(block.add(PANEL));
        _mm256_mul_ps(negative(halves(group.add(2 * PANEL))), mins)
    },
    eight: |block, C| nibbles(block.add(Q4K::NIBBLES), C),
    bytes: 4 less 0 |block, C| nibble_pair(block.add(Q4K::NIBBLES), C),
});

unpack!(Q5K {
    scales: |group, block| Q4K::scales(group, block),
    offsets: |group, block, half| Q4K::offsets(group, block, half),
    eight: |block, C| widen_unsigned(fives::<C>(block, Q5K::NIBBLES, Q5K::BITS)),
    bytes: 5 less 0 |block, C| fives::<C>(block, Q5K::NIBBLES, Q5K::BITS),
});

unpack!(Q6K {
    scales: |group, _| halves(group),
    eight: |block, C| {
        let values = sixes(block.add(Q6K::NIBBLES), block.add(Q6K::PAIRS), C);
        widen_signed_scaled(minus(values, 32), sub_scales(block, C))
    },
    bytes: 6 less 32 |block, C| sixes(block.add(Q6K::NIBBLES), block.add(Q6K::PAIRS), C),
    sub_scale: |block, half| sub_scale_of_half(block, half),
});

unpack!(Iq4Nl {
    scales: |_, block| halves(block),
    eight: |block, C| {
        let numbers = nibble_pair(block.add(Iq4Nl::NIBBLES), C);
        widen_signed(look_up(&iq4_nl::VALUES, numbers))
    },
    bytes: 8 less 128 |block, C| look_up(const { &raised(&iq4_nl::VALUES, 128) }, nibble_pair(block.add(Iq4Nl::NIBBLES), C)),
});

unpack!(Iq4Xs {
    scales: |group, block| _mm256_mul_ps(halves(group), signed_bytes(block)),
    eight: |block, C| {
        let numbers = nibble_pair(block.add(Iq4Xs::NIBBLES), C);
        widen_signed(look_up(&iq4_nl::VALUES, numbers))
    },
    bytes: 8 less 128 |block, C| look_up(const { &raised(&iq4_nl::VALUES, 128) }, nibble_pair(block.add(Iq4Xs::NIBBLES), C)),
});

unpack!(Mxfp4 {
    scales: |_, block| brain_halves(block),
    eight: |block, C| {
        let numbers = nibble_pair(block.add(Mxfp4::NIBBLES), C);
        widen_signed(look_up(&mxfp4::DOUBLED, numbers))
    },
    bytes: 5 less 16 |block, C| look_up(const { &raised(&mxfp4::DOUBLED, 16) }, nibble_pair(block.add(Mxfp4::NIBBLES), C)),
});
