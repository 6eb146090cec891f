//! Owns the steps that unpacking is made of: parts of a packed block as registers of bytes, and bytes as 16-bit integers.
//!
//! A pair of registers holds eight columns as bytes: the first has columns 0 to 3 of each row, the second columns 4 to 7.

use crate::pack::PANEL;
use std::arch::x86_64::*;

pub type Pair = [__m256i; 2];

/// Functions of registers or of memory that the caller promised to be there.
macro_rules! steps {
    ($($(#[$doc:meta])* fn $name:ident $(<const $n:ident: $t:ty>)?($($arg:ident: $type:ty),*) -> $out:ty $body:block)*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// What pointers point at is there; the processor has AVX2 and F16C.
        #[inline(always)]
        pub unsafe fn $name $(<const $n: $t>)?($($arg: $type),*) -> $out {
            // SAFETY: the caller's promise.
            unsafe { $body }
        })*
    };
}

steps! {
    /// Eight halves, widened.
    fn halves(p: *const u8) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(p.cast()))
    }

    /// Eight bf16, widened.
    fn brain_halves(p: *const u8) -> __m256 {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }

    /// Eight bytes, widened.
    fn unsigned_bytes(p: *const u8) -> __m256 {
        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())))
    }

    fn signed_bytes(p: *const u8) -> __m256 {
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())))
    }

    /// The high nibbles of eight bytes, widened.
    fn high_nibbles(p: *const u8) -> __m256 {
        let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
        _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(bytes))
    }

    fn negative(v: __m256) -> __m256 {
        _mm256_xor_ps(v, _mm256_set1_ps(-0.0))
    }

    /// The 4-bit values of chunk `c`, each in 16 bits.
    fn nibbles(chunks: *const u8, c: usize) -> [__m256i; 4] {
        let bytes = _mm256_loadu_si256(chunks.add(32 * c).cast());
        let mask = _mm256_set1_epi16(15);
        [
            _mm256_and_si256(bytes, mask),
            _mm256_and_si256(_mm256_srli_epi16::<8>(bytes), mask),
            _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask),
            _mm256_srli_epi16::<12>(bytes),
        ]
    }

    /// The same, each in a byte.
    fn nibble_pair(chunks: *const u8, c: usize) -> Pair {
        let bytes = _mm256_loadu_si256(chunks.add(32 * c).cast());
        let mask = _mm256_set1_epi8(15);
        [
            _mm256_and_si256(bytes, mask),
            _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask),
        ]
    }

    /// Bytes 8c to 8c + 8 of each row.
    fn byte_pair(chunks: *const u8, c: usize) -> Pair {
        let p = chunks.add(64 * c);
        [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())]
    }

    /// 2-bit values, each in a byte.
    fn bit_pairs(chunks: *const u8, c: usize) -> Pair {
        let bytes = _mm256_loadu_si256(chunks.add(32 * (c / 2)).cast());
        let mask = _mm256_set1_epi8(3);
        let (first, second) = match c % 2 {
            0 => (bytes, _mm256_srli_epi16::<2>(bytes)),
            _ => (_mm256_srli_epi16::<4>(bytes), _mm256_srli_epi16::<6>(bytes)),
        };
        [_mm256_and_si256(first, mask), _mm256_and_si256(second, mask)]
    }

    /// Single bits, each at bit `TO` of a byte.
    fn bits<const TO: usize>(chunk: *const u8, c: usize) -> Pair {
        let bytes = _mm256_loadu_si256(chunk.cast());
        let mask = _mm256_set1_epi8(1 << TO);
        let mut pair = [bytes; 2];
        for i in 0..2 {
            let from = 2 * c + i;
            let moved = match from.abs_diff(TO) {
                // A constant, as `c` is where this is inlined: what crosses into the next byte is masked.
                0 => bytes,
                1 => if from > TO { _mm256_srli_epi16::<1>(bytes) } else { _mm256_slli_epi16::<1>(bytes) },
                2 => if from > TO { _mm256_srli_epi16::<2>(bytes) } else { _mm256_slli_epi16::<2>(bytes) },
                3 => if from > TO { _mm256_srli_epi16::<3>(bytes) } else { _mm256_slli_epi16::<3>(bytes) },
                4 => if from > TO { _mm256_srli_epi16::<4>(bytes) } else { _mm256_slli_epi16::<4>(bytes) },
                _ => _mm256_srli_epi16::<5>(bytes),
            };
            pair[i] = _mm256_and_si256(moved, mask);
        }
        pair
    }

    fn or(a: Pair, b: Pair) -> Pair {
        [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
    }

    fn sub(a: Pair, b: Pair) -> Pair {
        [_mm256_sub_epi8(a[0], b[0]), _mm256_sub_epi8(a[1], b[1])]
    }

    fn minus(values: Pair, offset: i8) -> Pair {
        sub(values, [_mm256_set1_epi8(offset); 2])
    }

    /// What numbers below 16 stand for.
    fn look_up(values: &[i8; 16], numbers: Pair) -> Pair {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(values.as_ptr().cast()));
        [_mm256_shuffle_epi8(table, numbers[0]), _mm256_shuffle_epi8(table, numbers[1])]
    }

    /// The sub-scales for columns 8c to 8c + 8, each row's in all of its four bytes.
    fn sub_scales(block: *const u8, c: usize) -> __m256i {
        let scales = _mm_loadl_epi64(block.add(PANEL * (c / 2)).cast());
        let spread = _mm256_setr_epi8(
            0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,
            0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,
        );
        _mm256_shuffle_epi8(_mm256_cvtepu8_epi32(scales), spread)
    }

    fn low_nibbles(bytes: __m256i) -> __m256i {
        _mm256_and_si256(bytes, _mm256_set1_epi8(15))
    }

    fn widen_unsigned(values: Pair) -> [__m256i; 4] {
        let even = _mm256_set1_epi16(0xff);
        [
            _mm256_and_si256(values[0], even),
            _mm256_srli_epi16::<8>(values[0]),
            _mm256_and_si256(values[1], even),
            _mm256_srli_epi16::<8>(values[1]),
        ]
    }

    /// Multiplying adds neighbouring bytes, one of them times zero: that is widening in one instruction.
    fn widen_signed(values: Pair) -> [__m256i; 4] {
        let (even, odd) = (_mm256_set1_epi16(1), _mm256_set1_epi16(0x100));
        [
            _mm256_maddubs_epi16(even, values[0]),
            _mm256_maddubs_epi16(odd, values[0]),
            _mm256_maddubs_epi16(even, values[1]),
            _mm256_maddubs_epi16(odd, values[1]),
        ]
    }

    /// Unsigned values times scales of at most 127.
    fn widen_scaled(values: Pair, scales: __m256i) -> [__m256i; 4] {
        let mask = _mm256_set1_epi16(0xff);
        let (even, odd) = (_mm256_and_si256(scales, mask), _mm256_andnot_si256(mask, scales));
        [
            _mm256_maddubs_epi16(values[0], even),
            _mm256_maddubs_epi16(values[0], odd),
            _mm256_maddubs_epi16(values[1], even),
            _mm256_maddubs_epi16(values[1], odd),
        ]
    }

    /// Signed values (not -128) times signed scales: the scale's sign moves to the value.
    fn widen_signed_scaled(values: Pair, scales: __m256i) -> [__m256i; 4] {
        let (mask, size) = (_mm256_set1_epi16(0xff), _mm256_abs_epi8(scales));
        let (even, odd) = (_mm256_and_si256(size, mask), _mm256_andnot_si256(mask, size));
        let values = [_mm256_sign_epi8(values[0], scales), _mm256_sign_epi8(values[1], scales)];
        [
            _mm256_maddubs_epi16(even, values[0]),
            _mm256_maddubs_epi16(odd, values[0]),
            _mm256_maddubs_epi16(even, values[1]),
            _mm256_maddubs_epi16(odd, values[1]),
        ]
    }
}
