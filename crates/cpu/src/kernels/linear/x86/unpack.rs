//! Quantized weights as registers of 16-bit integers: one implementation per type, for few and for many rows alike.
//!
//! A register holds two columns of each of the eight rows of a panel, in the pairs that `place_of` puts side by side in
//! the activations. 16 bits hold every type's integers multiplied by their sub-scale (at most 128 * 32), and `madd` adds
//! products with 15-bit activations in 32 bits: all exact.

use super::direct::Dot;
use super::for_each_eight;
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

    /// Columns `8C..8C + 8` of a block in the pairs (0, 2), (1, 3), (4, 6), (5, 7). A constant, since loops over it are not
    /// always unrolled, and shifts by what is known only at run time cost much.
    ///
    /// # Safety
    /// As for `scales`, and `C < 4`.
    unsafe fn eight<const C: usize>(block: *const u8) -> [__m256i; 4];

    /// The exact products of a block with the integers of one row.
    ///
    /// # Safety
    /// As for `scales`; the processor has what `D` needs, and 32 integers can be read.
    #[inline(always)]
    unsafe fn one_row<D: Dot>(block: *const u8, x: *const i16) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            // Four chains of additions: what waits for long ones fills the processor's queues.
            let mut dots = [[_mm256_setzero_si256(); 2]; 2];
            for_each_eight!(C, {
                D::add::<1>(&mut dots[C % 2], &Self::eight::<C>(block), x.add(8 * C));
            });
            _mm256_add_epi32(
                _mm256_add_epi32(dots[0][0], dots[0][1]),
                _mm256_add_epi32(dots[1][0], dots[1][1]),
            )
        }
    }
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
        $(one_row: |$rb:ident, $x:ident, $d:ident| $one_row:expr,)?
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

            $(#[inline(always)]
            unsafe fn one_row<$d: Dot>($rb: *const u8, $x: *const i16) -> __m256i {
                // SAFETY: the caller's promise.
                unsafe { $one_row }
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
});

unpack!(Q4_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, C| nibbles(block.add(Q4_1::NIBBLES), C),
});

unpack!(Q5_0 {
    scales: |_, block| halves(block),
    eight: |block, C| {
        let high = bits::<C>(block.add(Q5_0::BITS));
        widen_signed(minus(
            or(nibble_pair(block.add(Q5_0::NIBBLES), C), high),
            16,
        ))
    },
});

unpack!(Q5_1 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| halves(block.add(2 * PANEL)),
    eight: |block, C| {
        let high = bits::<C>(block.add(Q5_1::BITS));
        widen_unsigned(or(nibble_pair(block.add(Q5_1::NIBBLES), C), high))
    },
});

unpack!(Q8_0 {
    scales: |_, block| halves(block),
    eight: |block, C| widen_signed(byte_pair(block.add(Q8_0::VALUES), C)),
});

unpack!(Affine8 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| {
        let lowered = _mm256_mul_ps(halves(block), _mm256_set1_ps(128.0));
        _mm256_add_ps(lowered, halves(block.add(2 * PANEL)))
    },
    eight: |block, C| widen_signed(byte_pair(block.add(Affine8::VALUES), C)),
});

unpack!(Zero4 {
    scales: |_, block| halves(block),
    offsets: |_, block, _| {
        let zeros = unsigned_bytes(block.add(Zero4::ZEROS));
        negative(_mm256_mul_ps(halves(block), zeros))
    },
    eight: |block, C| nibbles(block.add(Zero4::NIBBLES), C),
});

unpack!(Q2K {
    scales: |group, _| halves(group),
    offsets: |group, block, half| {
        let mins = _mm256_cvtepi32_ps(nibbles_of_half(block.add(Q2K::MINS), half));
        _mm256_mul_ps(negative(halves(group.add(2 * PANEL))), mins)
    },
    one_row: |block, x, D| {
        // Bit pairs are not moved but weighed: 1, 4, 16 and 64 times what they stand for. Sums are made up for that, so
        // that all are 64 times too large in the end: at most 64 * 32 * 45 * 16256 < 2^31.
        macro_rules! weighed {
            ($even:ident, $odd:ident, $sum:expr, $pair:literal, $at:literal, $odd_at:literal) => {{
                let mask = _mm256_set1_epi16(3 << (2 * $pair));
                let sum = D::add_two::<$at>($sum, _mm256_and_si256($even, mask), x);
                D::add_two::<$odd_at>(sum, _mm256_and_si256($odd, mask), x)
            }};
        }
        macro_rules! half {
            ($half:literal, $a:literal $b:literal, $c:literal $d:literal, $e:literal $f:literal, $g:literal $h:literal) => {{
                let even = _mm256_loadu_si256(block.add(Q2K::PAIRS + 32 * $half).cast());
                let odd = _mm256_srli_epi16::<8>(even);
                // Two short chains of additions: what waits for one long chain fills the processor's queues.
                let low = weighed!(even, odd, _mm256_setzero_si256(), 0, $a, $b);
                let low = weighed!(even, odd, _mm256_slli_epi32::<2>(low), 1, $c, $d);
                let high = weighed!(even, odd, _mm256_setzero_si256(), 2, $e, $f);
                let high = weighed!(even, odd, _mm256_slli_epi32::<2>(high), 3, $g, $h);
                let sum = _mm256_add_epi32(_mm256_slli_epi32::<4>(low), high);
                _mm256_mullo_epi32(sum, nibbles_of_half(block, $half))
            }};
        }
        let first = half!(0, 0 4, 8 12, 16 20, 24 28);
        let last = half!(1, 32 36, 40 44, 48 52, 56 60);
        let total = _mm256_add_epi32(first, last);
        _mm256_srai_epi32::<6>(total)
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
});

unpack!(Q3K {
    scales: |group, _| halves(group),
    offsets: |group, block, half| {
        let lowered = _mm256_mul_ps(halves(group), _mm256_set1_ps(-4.0));
        _mm256_mul_ps(lowered, signed_bytes(block.add(PANEL * half)))
    },
    eight: |block, C| widen_scaled(triples::<C>(block.add(Q3K::TRIPLES)), sub_scales(block, C)),
});

unpack!(Q4K {
    scales: |group, block| _mm256_mul_ps(halves(group), unsigned_bytes(block)),
    offsets: |group, block, _| {
        let mins = unsigned_bytes(block.add(PANEL));
        _mm256_mul_ps(negative(halves(group.add(2 * PANEL))), mins)
    },
    eight: |block, C| nibbles(block.add(Q4K::NIBBLES), C),
});

unpack!(Q5K {
    scales: |group, block| Q4K::scales(group, block),
    offsets: |group, block, half| Q4K::offsets(group, block, half),
    eight: |block, C| {
        let high = bits::<C>(block.add(Q5K::BITS));
        widen_unsigned(or(nibble_pair(block.add(Q5K::NIBBLES), C), high))
    },
});

unpack!(Q6K {
    scales: |group, _| halves(group),
    eight: |block, C| {
        let [first, second] = bit_pairs(block.add(Q6K::PAIRS), C);
        let high = [
            _mm256_slli_epi16::<4>(first),
            _mm256_slli_epi16::<4>(second),
        ];
        let values = minus(or(nibble_pair(block.add(Q6K::NIBBLES), C), high), 32);
        widen_signed_scaled(values, sub_scales(block, C))
    },
});

unpack!(Iq4Nl {
    scales: |_, block| halves(block),
    eight: |block, C| {
        let numbers = nibble_pair(block.add(Iq4Nl::NIBBLES), C);
        widen_signed(look_up(&iq4_nl::VALUES, numbers))
    },
});

unpack!(Iq4Xs {
    scales: |group, block| _mm256_mul_ps(halves(group), signed_bytes(block)),
    eight: |block, C| {
        let numbers = nibble_pair(block.add(Iq4Xs::NIBBLES), C);
        widen_signed(look_up(&iq4_nl::VALUES, numbers))
    },
});

unpack!(Mxfp4 {
    scales: |_, block| brain_halves(block),
    eight: |block, C| {
        let numbers = nibble_pair(block.add(Mxfp4::NIBBLES), C);
        widen_signed(look_up(&mxfp4::DOUBLED, numbers))
    },
});
