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

pub trait Unpack: Layout {
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

    /// Columns `8c..8c + 8` of a block in the pairs (0, 2), (1, 3), (4, 6), (5, 7).
    ///
    /// # Safety
    /// As for `scales`, and `c < 4`.
    unsafe fn eight(block: *const u8, c: usize) -> [__m256i; 4];
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

/// The two or three methods, each the caller's promise handed on.
macro_rules! unpack {
    ($type:ident {
        scales: |$g:pat_param, $b:pat_param| $scales:expr,
        $(offsets: |$og:pat_param, $ob:pat_param, $half:pat_param| $offsets:expr,)?
        eight: |$block:ident, $c:ident| $eight:expr,
    }) => {
        impl Unpack for $type {
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
            unsafe fn eight($block: *const u8, $c: usize) -> [__m256i; 4] {
                // SAFETY: the caller's promise.
                unsafe { $eight }
            }
        }
    };
}

unpack!(Q4_0 {
    scales: |_, block| halves(block),
    eight: |block, c| widen_signed(minus(nibble_pair(block.add(Q4_0::NIBBLES), c), 8)),
});

unpack!(Q4_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, c| nibbles(block.add(Q4_1::NIBBLES), c),
});

unpack!(Q5_0 {
    scales: |_, block| halves(block),
    eight: |block, c| {
        let high = bits::<4>(block.add(Q5_0::BITS), c);
        widen_signed(minus(
            or(nibble_pair(block.add(Q5_0::NIBBLES), c), high),
            16,
        ))
    },
});

unpack!(Q5_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, c| {
        let high = bits::<4>(block.add(Q5_1::BITS), c);
        widen_unsigned(or(nibble_pair(block.add(Q5_1::NIBBLES), c), high))
    },
});

unpack!(Q8_0 {
    scales: |_, block| halves(block),
    eight: |block, c| widen_signed(byte_pair(block.add(Q8_0::VALUES), c)),
});

unpack!(Affine8 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| {
        let lowered = _mm256_mul_ps(halves(block), _mm256_set1_ps(128.0));
        _mm256_add_ps(lowered, halves(block.add(2 * PANEL)))
    },
    eight: |block, c| widen_signed(byte_pair(block.add(Affine8::VALUES), c)),
});

unpack!(Zero4 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| {
        let zeros = unsigned_bytes(block.add(Zero4::ZEROS));
        negative(_mm256_mul_ps(halves(block), zeros))
    },
    eight: |block, c| nibbles(block.add(Zero4::NIBBLES), c),
});

unpack!(Q2K {
    scales: |group, _| halves(group),
    offsets: |group, block, half| {
        let mins = high_nibbles(block.add(PANEL * half));
        negative(_mm256_mul_ps(halves(group.add(2 * PANEL)), mins))
    },
    eight: |block, c| {
        let scales = low_nibbles(sub_scales(block, c));
        widen_scaled(bit_pairs(block.add(Q2K::PAIRS), c), scales)
    },
});

unpack!(Q3K {
    scales: |group, _| halves(group),
    eight: |block, c| {
        let low = bit_pairs(block.add(Q3K::PAIRS), c);
        let values = sub(low, bits::<2>(block.add(Q3K::BITS), c));
        widen_signed_scaled(values, sub_scales(block, c))
    },
});

unpack!(Q4K {
    scales: |group, block| _mm256_mul_ps(halves(group), unsigned_bytes(block)),
    offsets: |group, block, _| {
        let mins = unsigned_bytes(block.add(PANEL));
        negative(_mm256_mul_ps(halves(group.add(2 * PANEL)), mins))
    },
    eight: |block, c| nibbles(block.add(Q4K::NIBBLES), c),
});

unpack!(Q5K {
    scales: |group, block| Q4K::scales(group, block),
    offsets: |group, block, half| Q4K::offsets(group, block, half),
    eight: |block, c| {
        let high = bits::<4>(block.add(Q5K::BITS), c);
        widen_unsigned(or(nibble_pair(block.add(Q5K::NIBBLES), c), high))
    },
});

unpack!(Q6K {
    scales: |group, _| halves(group),
    eight: |block, c| {
        let high = bit_pairs(block.add(Q6K::PAIRS), c).map(|pairs| _mm256_slli_epi16::<4>(pairs));
        let values = minus(or(nibble_pair(block.add(Q6K::NIBBLES), c), high), 32);
        widen_signed_scaled(values, sub_scales(block, c))
    },
});

unpack!(Iq4Nl {
    scales: |_, block| halves(block),
    eight: |block, c| {
        let numbers = nibble_pair(block.add(Iq4Nl::NIBBLES), c);
        widen_signed(look_up(&iq4_nl::VALUES, numbers))
    },
});

unpack!(Iq4Xs {
    scales: |group, block| _mm256_mul_ps(halves(group), signed_bytes(block)),
    eight: |block, c| {
        let numbers = nibble_pair(block.add(Iq4Xs::NIBBLES), c);
        widen_signed(look_up(&iq4_nl::VALUES, numbers))
    },
});

unpack!(Mxfp4 {
    scales: |_, block| brain_halves(block),
    eight: |block, c| {
        let numbers = nibble_pair(block.add(Mxfp4::NIBBLES), c);
        widen_signed(look_up(&mxfp4::DOUBLED, numbers))
    },
});
