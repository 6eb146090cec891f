//! Owns the steps that unpacking is made of: parts of a packed block as registers of bytes, and bytes as 16-bit integers.
//!
//! A pair of registers holds eight columns as bytes: the first has columns 0 to 3 of each row, the second columns 4 to 7.

use crate::pack::PANEL;
use std::arch::x86_64::*;

pub type Pair = [__m256i; 2];

/// Masks that leave only the even or only the odd bytes.
const EVEN: i32 = 0x8000_8000_u32 as i32;
const ODD: i32 = 0x0080_0080;

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

    /// The low nibbles of eight bytes for the first half, the high ones for the last.
    fn nibbles_of_half(p: *const u8, half: usize) -> __m256i {
        let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
        match half {
            0 => _mm256_and_si256(bytes, _mm256_set1_epi32(15)),
            _ => _mm256_srli_epi32::<4>(bytes),
        }
    }

    /// The sub-scales of all rows and a half of the columns.
    fn sub_scale_of_half(block: *const u8, half: usize) -> __m256i {
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(block.add(PANEL * half).cast()))
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

    /// Signed bytes as unsigned ones that are 128 higher.
    fn raise(values: Pair) -> Pair {
        let highest = _mm256_set1_epi8(i8::MIN);
        [_mm256_xor_si256(values[0], highest), _mm256_xor_si256(values[1], highest)]
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

    /// 3-bit values, each in a byte.
    fn triples<const C: usize>(chunks: *const u8) -> Pair {
        let chunks = chunks.cast::<__m256i>();
        let mask = _mm256_set1_epi8(7);
        if C < 3 {
            let bytes = _mm256_loadu_si256(chunks.add(C));
            return [
                _mm256_and_si256(bytes, mask),
                _mm256_and_si256(_mm256_srli_epi16::<3>(bytes), mask),
            ];
        }
        let (low, high) = (_mm256_set1_epi8(3), _mm256_set1_epi8(4));
        let highest = _mm256_loadu_si256(chunks.add(1));
        or(
            [
                _mm256_and_si256(_mm256_srli_epi16::<6>(_mm256_loadu_si256(chunks)), low),
                _mm256_and_si256(_mm256_srli_epi16::<6>(_mm256_loadu_si256(chunks.add(2))), low),
            ],
            [
                _mm256_and_si256(_mm256_srli_epi16::<4>(highest), high),
                _mm256_and_si256(_mm256_srli_epi16::<5>(highest), high),
            ],
        )
    }

    /// Single bits, each at bit 4 of a byte; what crosses into the next byte is masked.
    fn bits<const C: usize>(chunk: *const u8) -> Pair {
        let bytes = _mm256_loadu_si256(chunk.cast());
        let (first, second) = match C {
            0 => (_mm256_slli_epi16::<4>(bytes), _mm256_slli_epi16::<3>(bytes)),
            1 => (_mm256_slli_epi16::<2>(bytes), _mm256_slli_epi16::<1>(bytes)),
            2 => (bytes, _mm256_srli_epi16::<1>(bytes)),
            _ => (_mm256_srli_epi16::<2>(bytes), _mm256_srli_epi16::<3>(bytes)),
        };
        let mask = _mm256_set1_epi8(0x10);
        [_mm256_and_si256(first, mask), _mm256_and_si256(second, mask)]
    }

    /// 5-bit values, each in a byte: nibbles and their highest bits.
    fn fives<const C: usize>(block: *const u8, nibbles: usize, highest: usize) -> Pair {
        or(nibble_pair(block.add(nibbles), C), bits::<C>(block.add(highest)))
    }

    /// 6-bit values, each in a byte: nibbles and their two highest bits.
    fn sixes(nibbles: *const u8, highest: *const u8, c: usize) -> Pair {
        let [first, second] = bit_pairs(highest, c);
        or(
            nibble_pair(nibbles, c),
            [_mm256_slli_epi16::<4>(first), _mm256_slli_epi16::<4>(second)],
        )
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

    /// The sub-scales for columns 8c to 8c + 8, those of all rows in every eight bytes.
    fn sub_scales(block: *const u8, c: usize) -> __m256i {
        _mm256_set1_epi64x(block.add(PANEL * (c / 2)).cast::<i64>().read_unaligned())
    }

    /// Each row's sub-scale in its four bytes, or zero where `mask` is set.
    fn spread(scales: __m256i, mask: i32) -> __m256i {
        let rows = _mm256_setr_epi32(
            0, 0x0101_0101, 0x0202_0202, 0x0303_0303, 0x0404_0404, 0x0505_0505, 0x0606_0606, 0x0707_0707,
        );
        // A place with its highest bit set is zero.
        _mm256_shuffle_epi8(scales, _mm256_or_si256(rows, _mm256_set1_epi32(mask)))
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

    /// Unsigned values times signed scales.
    fn widen_scaled(values: Pair, scales: __m256i) -> [__m256i; 4] {
        let (even, odd) = (spread(scales, EVEN), spread(scales, ODD));
        [
            _mm256_maddubs_epi16(values[0], even),
            _mm256_maddubs_epi16(values[0], odd),
            _mm256_maddubs_epi16(values[1], even),
            _mm256_maddubs_epi16(values[1], odd),
        ]
    }

    /// Signed values (not -128) times signed scales: the scale's sign moves to the value.
    fn widen_signed_scaled(values: Pair, scales: __m256i) -> [__m256i; 4] {
        let (size, signs) = (_mm256_abs_epi8(scales), spread(scales, 0));
        let (even, odd) = (spread(size, EVEN), spread(size, ODD));
        let values = [_mm256_sign_epi8(values[0], signs), _mm256_sign_epi8(values[1], signs)];
        [
            _mm256_maddubs_epi16(even, values[0]),
            _mm256_maddubs_epi16(odd, values[0]),
            _mm256_maddubs_epi16(even, values[1]),
            _mm256_maddubs_epi16(odd, values[1]),
        ]
    }
}
