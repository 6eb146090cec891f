//! Quantized weights in AVX2 registers: how each type unpacks a block of 32 columns of eight rows and multiplies it.
//!
//! A register holds four bytes of each row; the high and the low parts of four activations are broadcast to all rows;
//! `maddubs` multiplies and adds pairs in 16 bits. The largest 16-bit sums are 8 · 2 · 15 · 127 = 30480 for nibbles,
//! 2 · 128 · 127 = 32512 for bytes and 2 · 2 · 63 · 127 = 32004 for 6-bit values: all exact.

use crate::kernels::activations::QuantizedRow;
use crate::pack::PANEL;
use crate::pack::layout::{q4_0, q4_1, q4_k, q6_k, q8_0};
use std::arch::x86_64::*;

pub trait QuantizedWeights {
    /// Blocks that share a header, and their bytes with it.
    const GROUP_BLOCKS: usize;
    const GROUP_BYTES: usize;
    type Header;
    type Block;

    /// # Safety
    /// `group` is a whole group in this type's layout; the processor has AVX2, FMA and F16C (so for all three).
    unsafe fn header(group: *const u8) -> Self::Header;

    /// Block `j` of the group, unpacked.
    ///
    /// # Safety
    /// As for `header`, and `j < GROUP_BLOCKS`.
    unsafe fn block(group: *const u8, j: usize) -> Self::Block;

    /// `sum` plus the product of this block with block `b` of the activations.
    ///
    /// # Safety
    /// As for `header`, and the row has more than `b` blocks.
    unsafe fn add(
        header: &Self::Header,
        block: &Self::Block,
        x: &QuantizedRow<'_>,
        b: usize,
        sum: __m256,
    ) -> __m256;
}

/// Eight halves, widened.
#[inline(always)]
unsafe fn halves(p: *const u8) -> __m256 {
    // SAFETY: the caller reads inside its block.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
}

/// Parts `4g..4g + 4` of block `b`, for all rows.
#[inline(always)]
unsafe fn four(parts: &[i8], b: usize, g: usize) -> __m256i {
    // SAFETY: the row has the block, so these four bytes exist; any alignment is allowed.
    unsafe {
        let p = parts.as_ptr().add(32 * b + 4 * g).cast::<i32>();
        _mm256_set1_epi32(p.read_unaligned())
    }
}

/// `128 * high + low` from 16-bit sums of products with the high and the low parts.
#[inline(always)]
unsafe fn join(high: __m256i, low: __m256i) -> __m256i {
    // SAFETY: called where the processor has AVX2.
    unsafe {
        _mm256_add_epi32(
            _mm256_madd_epi16(high, _mm256_set1_epi16(128)),
            _mm256_madd_epi16(low, _mm256_set1_epi16(1)),
        )
    }
}

#[inline(always)]
unsafe fn scale(x: &QuantizedRow<'_>, b: usize) -> __m256 {
    // SAFETY: the row has the block.
    unsafe { _mm256_broadcast_ss(&*x.scales.as_ptr().add(b)) }
}

#[inline(always)]
unsafe fn sum_of(x: &QuantizedRow<'_>, b: usize) -> __m256 {
    // SAFETY: the row has the block.
    unsafe { _mm256_broadcast_ss(&*x.sums.as_ptr().add(b)) }
}

/// The eight groups of four 4-bit values of a block.
#[inline(always)]
unsafe fn unpack_nibbles(p: *const u8) -> [__m256i; 8] {
    // SAFETY: the caller gives four chunks of 32 bytes.
    unsafe {
        let mask = _mm256_set1_epi8(15);
        let mut groups = [_mm256_setzero_si256(); 8];
        for chunk in 0..4 {
            let bytes = _mm256_loadu_si256(p.add(32 * chunk).cast());
            groups[2 * chunk] = _mm256_and_si256(bytes, mask);
            groups[2 * chunk + 1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
        }
        groups
    }
}

/// The exact sum of 32 products a row, for values below 16.
#[inline(always)]
unsafe fn dot_nibbles(w: &[__m256i; 8], x: &QuantizedRow<'_>, b: usize) -> __m256i {
    // SAFETY: the caller's promise for `four`.
    unsafe {
        let mut high = _mm256_maddubs_epi16(w[0], four(x.high, b, 0));
        let mut low = _mm256_maddubs_epi16(w[0], four(x.low, b, 0));
        #[allow(clippy::needless_range_loop, reason = "g numbers the activations too")]
        for g in 1..8 {
            high = _mm256_add_epi16(high, _mm256_maddubs_epi16(w[g], four(x.high, b, g)));
            low = _mm256_add_epi16(low, _mm256_maddubs_epi16(w[g], four(x.low, b, g)));
        }
        join(high, low)
    }
}

pub struct Q4_0;

impl QuantizedWeights for Q4_0 {
    const GROUP_BLOCKS: usize = 1;
    const GROUP_BYTES: usize = q4_0::BYTES;
    type Header = __m256;
    type Block = [__m256i; 8];

    #[inline(always)]
    unsafe fn header(group: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(group) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, _: usize) -> [__m256i; 8] {
        // SAFETY: the caller's promise.
        unsafe { unpack_nibbles(group.add(q4_0::NIBBLES)) }
    }

    #[inline(always)]
    unsafe fn add(
        d: &__m256,
        w: &[__m256i; 8],
        x: &QuantizedRow<'_>,
        b: usize,
        sum: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let sum_of = |sums: &[i16]| {
                let halves = sums.as_ptr().add(2 * b);
                *halves as i32 + *halves.add(1) as i32
            };
            let total = 128 * sum_of(x.high_sums) + sum_of(x.low_sums);
            let dot = _mm256_sub_epi32(dot_nibbles(w, x, b), _mm256_set1_epi32(8 * total));
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(*d, scale(x, b)), sum)
        }
    }
}

pub struct Q4_1;

impl QuantizedWeights for Q4_1 {
    const GROUP_BLOCKS: usize = 1;
    const GROUP_BYTES: usize = q4_1::BYTES;
    type Header = (__m256, __m256);
    type Block = [__m256i; 8];

    #[inline(always)]
    unsafe fn header(group: *const u8) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { (halves(group), halves(group.add(2 * PANEL))) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, _: usize) -> [__m256i; 8] {
        // SAFETY: the caller's promise.
        unsafe { unpack_nibbles(group.add(q4_1::NIBBLES)) }
    }

    #[inline(always)]
    unsafe fn add(
        (d, min): &(__m256, __m256),
        w: &[__m256i; 8],
        x: &QuantizedRow<'_>,
        b: usize,
        sum: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let dot = _mm256_cvtepi32_ps(dot_nibbles(w, x, b));
            let sum = _mm256_fmadd_ps(dot, _mm256_mul_ps(*d, scale(x, b)), sum);
            _mm256_fmadd_ps(*min, sum_of(x, b), sum)
        }
    }
}

pub struct Q8_0;

impl QuantizedWeights for Q8_0 {
    const GROUP_BLOCKS: usize = 1;
    const GROUP_BYTES: usize = q8_0::BYTES;
    type Header = __m256;
    /// Bytes need no unpacking and stay in the cache: eight registers of them would leave none for the work.
    type Block = *const u8;

    #[inline(always)]
    unsafe fn header(group: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(group) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, _: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { group.add(q8_0::QUANTS) }
    }

    #[inline(always)]
    unsafe fn add(
        d: &__m256,
        w: &*const u8,
        x: &QuantizedRow<'_>,
        b: usize,
        sum: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let mut dot = _mm256_setzero_si256();
            for g in 0..8 {
                let w = _mm256_loadu_si256(w.add(32 * g).cast());
                // |w| · (x with w's sign): neither part is -128, so the sign can be moved.
                let size = _mm256_abs_epi8(w);
                let product =
                    |parts| _mm256_maddubs_epi16(size, _mm256_sign_epi8(four(parts, b, g), w));
                dot = _mm256_add_epi32(dot, join(product(x.high), product(x.low)));
            }
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(*d, scale(x, b)), sum)
        }
    }
}

pub struct Q4K;

impl QuantizedWeights for Q4K {
    const GROUP_BLOCKS: usize = 8;
    const GROUP_BYTES: usize = q4_k::BYTES;
    type Header = (__m256, __m256);
    /// Values, sub-scales and sub-minima.
    type Block = ([__m256i; 8], __m256, __m256);

    #[inline(always)]
    unsafe fn header(group: *const u8) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { (halves(group), halves(group.add(2 * PANEL))) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, j: usize) -> Self::Block {
        // SAFETY: the caller's promise.
        unsafe {
            let block = group.add(q4_k::HEADER + j * q4_k::BLOCK_BYTES);
            let bytes =
                |p: *const u8| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
            (
                unpack_nibbles(block.add(2 * PANEL)),
                bytes(block),
                bytes(block.add(PANEL)),
            )
        }
    }

    #[inline(always)]
    unsafe fn add(
        (d, dmin): &(__m256, __m256),
        (w, sub_scale, sub_min): &Self::Block,
        x: &QuantizedRow<'_>,
        b: usize,
        sum: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let dot = _mm256_cvtepi32_ps(dot_nibbles(w, x, b));
            let scale = _mm256_mul_ps(_mm256_mul_ps(*d, *sub_scale), scale(x, b));
            let sum = _mm256_fmadd_ps(dot, scale, sum);
            _mm256_fnmadd_ps(_mm256_mul_ps(*dmin, *sub_min), sum_of(x, b), sum)
        }
    }
}

pub struct Q6K;

impl QuantizedWeights for Q6K {
    const GROUP_BLOCKS: usize = 8;
    const GROUP_BYTES: usize = q6_k::BYTES;
    type Header = __m256;
    /// Values (0..64) and the two sub-scales of each row as 16-bit pairs.
    type Block = ([__m256i; 8], __m256i);

    #[inline(always)]
    unsafe fn header(group: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(group) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, j: usize) -> Self::Block {
        // SAFETY: the caller's promise.
        unsafe {
            let block = group.add(q6_k::HEADER + j * q6_k::BLOCK_BYTES);
            let scales = _mm256_cvtepi8_epi16(_mm_loadu_si128(block.cast()));
            let mut w = unpack_nibbles(block.add(2 * PANEL));
            let mask = _mm256_set1_epi8(0x30);
            for h in 0..2 {
                let high = _mm256_loadu_si256(block.add(q6_k::HIGH + 32 * h).cast());
                // Bit pair p of each byte, moved to bits 4 and 5.
                let pairs = [
                    _mm256_slli_epi16(high, 4),
                    _mm256_slli_epi16(high, 2),
                    high,
                    _mm256_srli_epi16(high, 2),
                ];
                for (p, pair) in pairs.into_iter().enumerate() {
                    let g = 4 * h + p;
                    w[g] = _mm256_or_si256(w[g], _mm256_and_si256(pair, mask));
                }
            }
            (w, scales)
        }
    }

    #[inline(always)]
    unsafe fn add(
        d: &__m256,
        (w, scales): &Self::Block,
        x: &QuantizedRow<'_>,
        b: usize,
        sum: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_set1_epi32(0xffff);
            let first = _mm256_and_si256(*scales, low);
            let first = _mm256_or_si256(first, _mm256_slli_epi32(first, 16));
            let second = _mm256_srli_epi32(*scales, 16);
            let second = _mm256_or_si256(second, _mm256_slli_epi32(second, 16));
            let dot = |parts, sums: &[i16]| {
                let mut dot = _mm256_setzero_si256();
                for (half, scale) in [first, second].into_iter().enumerate() {
                    for g in [4 * half, 4 * half + 2] {
                        let products = _mm256_add_epi16(
                            _mm256_maddubs_epi16(w[g], four(parts, b, g)),
                            _mm256_maddubs_epi16(w[g + 1], four(parts, b, g + 1)),
                        );
                        dot = _mm256_add_epi32(dot, _mm256_madd_epi16(products, scale));
                    }
                }
                // Values are stored with 32 added: take 32 · (scale · sum of parts) off again.
                let pair = sums.as_ptr().add(2 * b).cast::<i32>().read_unaligned();
                let offset = _mm256_madd_epi16(*scales, _mm256_set1_epi32(pair));
                _mm256_sub_epi32(dot, _mm256_slli_epi32(offset, 5))
            };
            let high = dot(x.high, x.high_sums);
            let low = dot(x.low, x.low_sums);
            let dot = _mm256_add_epi32(_mm256_slli_epi32(high, 7), low);
            let dot = _mm256_cvtepi32_ps(dot);
            _mm256_fmadd_ps(dot, _mm256_mul_ps(*d, scale(x, b)), sum)
        }
    }
}
