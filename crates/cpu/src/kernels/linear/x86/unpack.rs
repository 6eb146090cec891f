//! Quantized weights as registers of 16-bit integers: one implementation per type, for few and for many rows alike.
//!
//! A register holds two columns of each of the eight rows of a panel, in the pairs that `place_of` puts side by side in
//! the activations. 16 bits hold every type's integers, those of Q6_K multiplied by their sub-scale included
//! (at most 128 * 32), and `madd` adds products with 15-bit activations in 32 bits: all exact.

use crate::pack::PANEL;
use crate::pack::layout::{q4_0, q4_1, q4_k, q6_k, q8_0};
use std::arch::x86_64::*;

pub trait Unpack {
    /// Blocks that share a header, and their bytes with it.
    const GROUP_BLOCKS: usize;
    const GROUP_BYTES: usize;
    /// Whether a value is `scale * integer + offset`, or just `scale * integer`.
    const HAS_OFFSET: bool;
    type Header;
    type Block;

    /// # Safety
    /// `group` is a whole group in this type's layout; the processor has AVX2, FMA and F16C (so for all).
    unsafe fn header(group: *const u8) -> Self::Header;

    /// Block `j` of the group.
    ///
    /// # Safety
    /// As for `header`, and `j < GROUP_BLOCKS`.
    unsafe fn block(group: *const u8, j: usize) -> Self::Block;

    /// Scales and offsets of the eight rows.
    ///
    /// # Safety
    /// As for `block`.
    unsafe fn scales(header: &Self::Header, block: &Self::Block) -> (__m256, __m256);

    /// Columns `8c..8c + 8` of a block in the pairs (0, 2), (1, 3), (4, 6), (5, 7).
    ///
    /// # Safety
    /// As for `block`, and `c < 4`.
    unsafe fn eight(block: &Self::Block, c: usize) -> [__m256i; 4];
}

/// Eight halves, widened.
#[inline(always)]
unsafe fn halves(p: *const u8) -> __m256 {
    // SAFETY: the caller reads inside its block.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
}

/// Eight bytes, widened.
#[inline(always)]
unsafe fn bytes(p: *const u8) -> __m256 {
    // SAFETY: the caller reads inside its block.
    unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))) }
}

/// The 4-bit values of chunk `c`, widened.
#[inline(always)]
unsafe fn nibbles(chunks: *const u8, c: usize) -> [__m256i; 4] {
    // SAFETY: the caller gives four chunks of 32 bytes.
    unsafe {
        let bytes = _mm256_loadu_si256(chunks.add(32 * c).cast());
        let mask = _mm256_set1_epi16(15);
        [
            _mm256_and_si256(bytes, mask),
            _mm256_and_si256(_mm256_srli_epi16(bytes, 8), mask),
            _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask),
            _mm256_srli_epi16(bytes, 12),
        ]
    }
}

pub struct Q4_0;

impl Unpack for Q4_0 {
    const GROUP_BLOCKS: usize = 1;
    const GROUP_BYTES: usize = q4_0::BYTES;
    const HAS_OFFSET: bool = false;
    type Header = __m256;
    type Block = *const u8;

    #[inline(always)]
    unsafe fn header(group: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(group) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, _: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { group.add(q4_0::NIBBLES) }
    }

    #[inline(always)]
    unsafe fn scales(d: &__m256, _: &*const u8) -> (__m256, __m256) {
        (*d, *d)
    }

    #[inline(always)]
    unsafe fn eight(block: &*const u8, c: usize) -> [__m256i; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut w = nibbles(*block, c);
            for w in &mut w {
                *w = _mm256_sub_epi16(*w, _mm256_set1_epi16(8));
            }
            w
        }
    }
}

pub struct Q4_1;

impl Unpack for Q4_1 {
    const GROUP_BLOCKS: usize = 1;
    const GROUP_BYTES: usize = q4_1::BYTES;
    const HAS_OFFSET: bool = true;
    type Header = (__m256, __m256);
    type Block = *const u8;

    #[inline(always)]
    unsafe fn header(group: *const u8) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { (halves(group), halves(group.add(2 * PANEL))) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, _: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { group.add(q4_1::NIBBLES) }
    }

    #[inline(always)]
    unsafe fn scales(header: &(__m256, __m256), _: &*const u8) -> (__m256, __m256) {
        *header
    }

    #[inline(always)]
    unsafe fn eight(block: &*const u8, c: usize) -> [__m256i; 4] {
        // SAFETY: the caller's promise.
        unsafe { nibbles(*block, c) }
    }
}

pub struct Q8_0;

impl Unpack for Q8_0 {
    const GROUP_BLOCKS: usize = 1;
    const GROUP_BYTES: usize = q8_0::BYTES;
    const HAS_OFFSET: bool = false;
    type Header = __m256;
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
    unsafe fn scales(d: &__m256, _: &*const u8) -> (__m256, __m256) {
        (*d, *d)
    }

    #[inline(always)]
    unsafe fn eight(block: &*const u8, c: usize) -> [__m256i; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let first = _mm256_loadu_si256(block.add(64 * c).cast());
            let second = _mm256_loadu_si256(block.add(64 * c + 32).cast());
            [
                _mm256_srai_epi16(_mm256_slli_epi16(first, 8), 8),
                _mm256_srai_epi16(first, 8),
                _mm256_srai_epi16(_mm256_slli_epi16(second, 8), 8),
                _mm256_srai_epi16(second, 8),
            ]
        }
    }
}

pub struct Q4K;

impl Unpack for Q4K {
    const GROUP_BLOCKS: usize = 8;
    const GROUP_BYTES: usize = q4_k::BYTES;
    const HAS_OFFSET: bool = true;
    type Header = (__m256, __m256);
    type Block = *const u8;

    #[inline(always)]
    unsafe fn header(group: *const u8) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe { (halves(group), halves(group.add(2 * PANEL))) }
    }

    #[inline(always)]
    unsafe fn block(group: *const u8, j: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { group.add(q4_k::HEADER + j * q4_k::BLOCK_BYTES) }
    }

    #[inline(always)]
    unsafe fn scales((d, dmin): &(__m256, __m256), block: &*const u8) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe {
            let min = _mm256_mul_ps(*dmin, bytes(block.add(PANEL)));
            let sign = _mm256_set1_ps(-0.0);
            (_mm256_mul_ps(*d, bytes(*block)), _mm256_xor_ps(min, sign))
        }
    }

    #[inline(always)]
    unsafe fn eight(block: &*const u8, c: usize) -> [__m256i; 4] {
        // SAFETY: the caller's promise.
        unsafe { nibbles(block.add(2 * PANEL), c) }
    }
}

pub struct Q6K;

impl Unpack for Q6K {
    const GROUP_BLOCKS: usize = 8;
    const GROUP_BYTES: usize = q6_k::BYTES;
    const HAS_OFFSET: bool = false;
    type Header = __m256;
    /// The block, and the sub-scales of its first and second 16 columns, twice for each row.
    type Block = (*const u8, [__m256i; 2]);

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
            let first = _mm256_and_si256(scales, _mm256_set1_epi32(0xffff));
            let first = _mm256_or_si256(first, _mm256_slli_epi32(first, 16));
            let second = _mm256_srli_epi32(scales, 16);
            let second = _mm256_or_si256(second, _mm256_slli_epi32(second, 16));
            (block, [first, second])
        }
    }

    #[inline(always)]
    unsafe fn scales(d: &__m256, _: &Self::Block) -> (__m256, __m256) {
        (*d, *d)
    }

    #[inline(always)]
    unsafe fn eight((block, scales): &Self::Block, c: usize) -> [__m256i; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let low = nibbles(block.add(2 * PANEL), c);
            let high = _mm256_loadu_si256(block.add(q6_k::HIGH + 32 * (c / 2)).cast());
            // Bit pairs 2(c % 2) and 2(c % 2) + 1 of each byte, moved to bits 4 and 5 of even and of odd bytes.
            let pairs = match c % 2 {
                0 => [
                    _mm256_slli_epi16(high, 4),
                    _mm256_srli_epi16(high, 4),
                    _mm256_slli_epi16(high, 2),
                    _mm256_srli_epi16(high, 6),
                ],
                _ => [
                    high,
                    _mm256_srli_epi16(high, 8),
                    _mm256_srli_epi16(high, 2),
                    _mm256_srli_epi16(high, 10),
                ],
            };
            let (mask, offset) = (_mm256_set1_epi16(0x30), _mm256_set1_epi16(32));
            let mut w = low;
            for v in 0..4 {
                let value = _mm256_or_si256(low[v], _mm256_and_si256(pairs[v], mask));
                w[v] = _mm256_mullo_epi16(_mm256_sub_epi16(value, offset), scales[c / 2]);
            }
            w
        }
    }
}
