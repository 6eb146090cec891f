//! Rows of a panel side by side in registers: eight in one of AVX2, all 16 in one of AVX-512. What kernels do with weights
//! is written once, over these.

use crate::kernels::linear::Linear;
use crate::pack::layout::F8;
use crate::pack::{CHUNK, PANEL};
use std::arch::x86_64::*;

/// A register with some rows of a panel. Memory is given as the place of the panel's first row; a register reads its own.
///
/// # Safety
/// Of all functions: the processor has the instructions, and what pointers point at is there.
pub trait Register: Copy {
    /// The first of the rows.
    const FIRST: usize;
    /// 32 bits of each row.
    type Integers: Copy;
    type Floats: Copy;

    unsafe fn zero() -> Self::Integers;
    /// A chunk.
    unsafe fn chunk(chunks: *const u8, number: usize) -> Self::Integers;
    /// Writes a chunk, at a multiple of its size.
    unsafe fn store_chunk(values: Self::Integers, chunk: *mut u8);
    /// A byte of each row, widened.
    unsafe fn unsigned(bytes: *const u8) -> Self::Integers;
    unsafe fn signed(bytes: *const u8) -> Self::Integers;
    /// A byte of each row four times, or zero where `mask` has a byte's highest bit.
    unsafe fn spread(bytes: Self::Integers, mask: i32) -> Self::Integers;
    /// Bytes that `spread` takes.
    unsafe fn to_spread(bytes: *const u8) -> Self::Integers;
    unsafe fn of_bytes(value: i8) -> Self::Integers;
    unsafe fn of_words(value: i16) -> Self::Integers;
    unsafe fn of_integers(value: i32) -> Self::Integers;
    unsafe fn and(a: Self::Integers, b: Self::Integers) -> Self::Integers;
    unsafe fn or(a: Self::Integers, b: Self::Integers) -> Self::Integers;
    unsafe fn xor(a: Self::Integers, b: Self::Integers) -> Self::Integers;
    unsafe fn left<const N: u32>(words: Self::Integers) -> Self::Integers;
    unsafe fn right<const N: u32>(words: Self::Integers) -> Self::Integers;
    unsafe fn integers_left<const N: u32>(a: Self::Integers) -> Self::Integers;
    unsafe fn bytes_minus(a: Self::Integers, b: Self::Integers) -> Self::Integers;
    unsafe fn byte_sizes(a: Self::Integers) -> Self::Integers;
    /// Bytes, negative where `signs` is; where that is zero, anything.
    unsafe fn with_signs(a: Self::Integers, signs: Self::Integers) -> Self::Integers;
    /// Products of unsigned and signed bytes, neighbours added in 16 bits.
    unsafe fn byte_products(unsigned: Self::Integers, signed: Self::Integers) -> Self::Integers;
    /// What bytes below 16 stand for.
    unsafe fn look_up(values: &[i8; 16], numbers: Self::Integers) -> Self::Integers;
    unsafe fn plus(a: Self::Integers, b: Self::Integers) -> Self::Integers;
    unsafe fn times(a: Self::Integers, b: Self::Integers) -> Self::Integers;
    unsafe fn floats(a: Self::Integers) -> Self::Floats;

    unsafe fn zeros() -> Self::Floats;
    unsafe fn of_floats(value: f32) -> Self::Floats;
    unsafe fn load(floats: *const f32) -> Self::Floats;
    /// Writes them, at a multiple of their size.
    unsafe fn store(values: Self::Floats, floats: *mut f32);
    /// Writes them anywhere.
    unsafe fn write(values: Self::Floats, floats: *mut f32);
    unsafe fn halves(halves: *const u8) -> Self::Floats;
    unsafe fn brain_halves(halves: *const u8) -> Self::Floats;
    /// Floats of 8 bits (e4m3) as `F8` says.
    unsafe fn small_floats(bytes: *const u8) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn negative(a: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Finishes a row of the output: see `Linear::store`.
    unsafe fn finish(values: Self::Floats, linear: &Linear<'_>, panel: usize, row: usize);
}

/// The first or the last eight rows, in a register of AVX2.
#[derive(Clone, Copy)]
pub struct Eight<const HALF: usize>;

/// All rows, in a register of AVX-512.
#[derive(Clone, Copy)]
pub struct Sixteen;

/// The functions of a register, each the caller's promise handed on.
macro_rules! register {
    (
        $type:ty $(, const $half:ident)?; $first:expr, $integers:ty, $floats:ty;
        $(fn $name:ident $(<const $n:ident>)?($($arg:ident: $argument:ty),*) $(-> $out:ty)? $body:block)*
    ) => {
        impl $(<const $half: usize>)? Register for $type {
            const FIRST: usize = $first;
            type Integers = $integers;
            type Floats = $floats;

            $(#[inline(always)]
            unsafe fn $name $(<const $n: u32>)?($($arg: $argument),*) $(-> $out)? {
                // SAFETY: the caller's promise.
                unsafe { $body }
            })*
        }
    };
}

register! {
    Eight<HALF>, const HALF; 8 * HALF, __m256i, __m256;

    fn zero() -> __m256i { _mm256_setzero_si256() }
    fn chunk(chunks: *const u8, number: usize) -> __m256i {
        _mm256_loadu_si256(chunks.add(CHUNK * number + 4 * Self::FIRST).cast())
    }
    fn store_chunk(values: __m256i, chunk: *mut u8) {
        _mm256_store_si256(chunk.add(4 * Self::FIRST).cast(), values)
    }
    fn unsigned(bytes: *const u8) -> __m256i {
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.add(Self::FIRST).cast()))
    }
    fn signed(bytes: *const u8) -> __m256i {
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes.add(Self::FIRST).cast()))
    }
    fn spread(bytes: __m256i, mask: i32) -> __m256i {
        let rows = _mm256_setr_epi32(
            0, 0x0101_0101, 0x0202_0202, 0x0303_0303, 0x0404_0404, 0x0505_0505, 0x0606_0606, 0x0707_0707,
        );
        _mm256_shuffle_epi8(bytes, _mm256_or_si256(rows, _mm256_set1_epi32(mask)))
    }
    fn to_spread(bytes: *const u8) -> __m256i {
        _mm256_set1_epi64x(bytes.add(Self::FIRST).cast::<i64>().read_unaligned())
    }
    fn of_bytes(value: i8) -> __m256i { _mm256_set1_epi8(value) }
    fn of_words(value: i16) -> __m256i { _mm256_set1_epi16(value) }
    fn of_integers(value: i32) -> __m256i { _mm256_set1_epi32(value) }
    fn and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
    fn or(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
    fn xor(a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
    fn left<const N>(words: __m256i) -> __m256i { _mm256_sll_epi16(words, count(N)) }
    fn right<const N>(words: __m256i) -> __m256i { _mm256_srl_epi16(words, count(N)) }
    fn integers_left<const N>(a: __m256i) -> __m256i { _mm256_sll_epi32(a, count(N)) }
    fn bytes_minus(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi8(a, b) }
    fn byte_sizes(a: __m256i) -> __m256i { _mm256_abs_epi8(a) }
    fn with_signs(a: __m256i, signs: __m256i) -> __m256i { _mm256_sign_epi8(a, signs) }
    fn byte_products(unsigned: __m256i, signed: __m256i) -> __m256i {
        _mm256_maddubs_epi16(unsigned, signed)
    }
    fn look_up(values: &[i8; 16], numbers: __m256i) -> __m256i {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(values.as_ptr().cast()));
        _mm256_shuffle_epi8(table, numbers)
    }
    fn plus(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
    fn times(a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi32(a, b) }
    fn floats(a: __m256i) -> __m256 { _mm256_cvtepi32_ps(a) }

    fn zeros() -> __m256 { _mm256_setzero_ps() }
    fn of_floats(value: f32) -> __m256 { _mm256_set1_ps(value) }
    fn load(floats: *const f32) -> __m256 { _mm256_loadu_ps(floats.add(Self::FIRST)) }
    fn store(values: __m256, floats: *mut f32) { _mm256_store_ps(floats.add(Self::FIRST), values) }
    fn write(values: __m256, floats: *mut f32) {
        _mm256_storeu_ps(floats.add(Self::FIRST), values)
    }
    fn halves(halves: *const u8) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(halves.add(2 * Self::FIRST).cast()))
    }
    fn brain_halves(halves: *const u8) -> __m256 {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves.add(2 * Self::FIRST).cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
    fn small_floats(bytes: *const u8) -> __m256 {
        // The sign goes to bit 31, and its copies from the bits below; exponent and fraction fall into place.
        let wide = _mm256_slli_epi32::<20>(Self::signed(bytes));
        _mm256_castsi256_ps(_mm256_and_si256(wide, _mm256_set1_epi32(F8::BITS)))
    }
    fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
    fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
    fn negative(a: __m256) -> __m256 { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
    fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
    fn finish(values: __m256, linear: &Linear<'_>, panel: usize, row: usize) {
        let values = std::mem::transmute::<__m256, [f32; 8]>(values);
        linear.store(panel * PANEL + Self::FIRST, row, &values)
    }
}

register! {
    Sixteen; 0, __m512i, __m512;

    fn zero() -> __m512i { _mm512_setzero_si512() }
    fn chunk(chunks: *const u8, number: usize) -> __m512i {
        _mm512_loadu_si512(chunks.add(CHUNK * number).cast())
    }
    fn store_chunk(values: __m512i, chunk: *mut u8) { _mm512_store_si512(chunk.cast(), values) }
    fn unsigned(bytes: *const u8) -> __m512i {
        _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.cast()))
    }
    fn signed(bytes: *const u8) -> __m512i {
        _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.cast()))
    }
    fn spread(bytes: __m512i, mask: i32) -> __m512i {
        let rows = _mm512_setr_epi32(
            0, 0x0101_0101, 0x0202_0202, 0x0303_0303, 0x0404_0404, 0x0505_0505, 0x0606_0606, 0x0707_0707,
            0x0808_0808, 0x0909_0909, 0x0a0a_0a0a, 0x0b0b_0b0b, 0x0c0c_0c0c, 0x0d0d_0d0d, 0x0e0e_0e0e, 0x0f0f_0f0f,
        );
        _mm512_shuffle_epi8(bytes, _mm512_or_si512(rows, _mm512_set1_epi32(mask)))
    }
    fn to_spread(bytes: *const u8) -> __m512i {
        _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.cast()))
    }
    fn of_bytes(value: i8) -> __m512i { _mm512_set1_epi8(value) }
    fn of_words(value: i16) -> __m512i { _mm512_set1_epi16(value) }
    fn of_integers(value: i32) -> __m512i { _mm512_set1_epi32(value) }
    fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
    fn or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
    fn xor(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
    fn left<const N>(words: __m512i) -> __m512i { _mm512_slli_epi16::<N>(words) }
    fn right<const N>(words: __m512i) -> __m512i { _mm512_srli_epi16::<N>(words) }
    fn integers_left<const N>(a: __m512i) -> __m512i { _mm512_slli_epi32::<N>(a) }
    fn bytes_minus(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi8(a, b) }
    fn byte_sizes(a: __m512i) -> __m512i { _mm512_abs_epi8(a) }
    fn with_signs(a: __m512i, signs: __m512i) -> __m512i {
        _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(signs), _mm512_setzero_si512(), a)
    }
    fn byte_products(unsigned: __m512i, signed: __m512i) -> __m512i {
        _mm512_maddubs_epi16(unsigned, signed)
    }
    fn look_up(values: &[i8; 16], numbers: __m512i) -> __m512i {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(values.as_ptr().cast()));
        _mm512_shuffle_epi8(table, numbers)
    }
    fn plus(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
    fn times(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi32(a, b) }
    fn floats(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }

    fn zeros() -> __m512 { _mm512_setzero_ps() }
    fn of_floats(value: f32) -> __m512 { _mm512_set1_ps(value) }
    fn load(floats: *const f32) -> __m512 { _mm512_loadu_ps(floats) }
    fn store(values: __m512, floats: *mut f32) { _mm512_store_ps(floats, values) }
    fn write(values: __m512, floats: *mut f32) { _mm512_storeu_ps(floats, values) }
    fn halves(halves: *const u8) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(halves.cast()))
    }
    fn brain_halves(halves: *const u8) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(halves.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }
    fn small_floats(bytes: *const u8) -> __m512 {
        // As for eight rows.
        let wide = _mm512_slli_epi32::<20>(Self::signed(bytes));
        _mm512_castsi512_ps(_mm512_and_si512(wide, _mm512_set1_epi32(F8::BITS)))
    }
    fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
    fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
    fn negative(a: __m512) -> __m512 {
        let sign = _mm512_set1_epi32(i32::MIN);
        _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), sign))
    }
    fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
    fn finish(values: __m512, linear: &Linear<'_>, panel: usize, row: usize) {
        let values = std::mem::transmute::<__m512, [f32; PANEL]>(values);
        linear.store(panel * PANEL, row, &values)
    }
}

/// How far to shift. AVX2's shifts by a constant want it signed; the compiler makes these the same.
#[inline(always)]
unsafe fn count(n: u32) -> __m128i {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { _mm_cvtsi32_si128(n as i32) }
}

/// A panel's rows in all the registers that they take.
///
/// # Safety
/// As for `Register`.
pub trait Panel {
    type Integers: Copy;
    type Floats: Copy;

    unsafe fn floats(integers: Self::Integers) -> Self::Floats;
    unsafe fn zeros() -> Self::Floats;
    unsafe fn load(p: *const f32) -> Self::Floats;
    /// Writes them, at a multiple of 64.
    unsafe fn store(values: Self::Floats, p: *mut f32);
    /// Writes them anywhere.
    unsafe fn write(values: Self::Floats, p: *mut f32);
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn times(values: Self::Floats, by: f32) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The same with one `b` for all rows.
    unsafe fn mul_add_one(a: Self::Floats, b: f32, c: Self::Floats) -> Self::Floats;
    unsafe fn lanes(values: Self::Floats) -> [f32; PANEL];
}

pub struct Avx2;
pub struct Avx512;

/// The functions of a panel, each the caller's promise handed on.
macro_rules! panel {
    (
        $name:ident, $integers:ty, $floats:ty;
        $(fn $f:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? $body:block)*
    ) => {
        impl Panel for $name {
            type Integers = $integers;
            type Floats = $floats;

            $(#[inline(always)]
            unsafe fn $f($($arg: $type),*) $(-> $out)? {
                // SAFETY: the caller's promise.
                unsafe { $body }
            })*
        }
    };
}

panel! {
    Avx2, [__m256i; 2], [__m256; 2];

    fn floats(integers: [__m256i; 2]) -> [__m256; 2] {
        [_mm256_cvtepi32_ps(integers[0]), _mm256_cvtepi32_ps(integers[1])]
    }
    fn zeros() -> [__m256; 2] { [_mm256_setzero_ps(); 2] }
    fn load(p: *const f32) -> [__m256; 2] { [Eight::<0>::load(p), Eight::<1>::load(p)] }
    fn store(values: [__m256; 2], p: *mut f32) {
        Eight::<0>::store(values[0], p);
        Eight::<1>::store(values[1], p);
    }
    fn write(values: [__m256; 2], p: *mut f32) {
        Eight::<0>::write(values[0], p);
        Eight::<1>::write(values[1], p);
    }
    fn add(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]
    }
    fn times(values: [__m256; 2], by: f32) -> [__m256; 2] {
        let by = _mm256_set1_ps(by);
        [_mm256_mul_ps(values[0], by), _mm256_mul_ps(values[1], by)]
    }
    fn mul_add(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
    }
    fn mul_add_one(a: [__m256; 2], b: f32, c: [__m256; 2]) -> [__m256; 2] {
        Self::mul_add(a, [_mm256_set1_ps(b); 2], c)
    }
    fn lanes(values: [__m256; 2]) -> [f32; PANEL] { std::mem::transmute(values) }
}

panel! {
    Avx512, __m512i, __m512;

    fn floats(integers: __m512i) -> __m512 { _mm512_cvtepi32_ps(integers) }
    fn zeros() -> __m512 { _mm512_setzero_ps() }
    fn load(p: *const f32) -> __m512 { Sixteen::load(p) }
    fn store(values: __m512, p: *mut f32) { Sixteen::store(values, p) }
    fn write(values: __m512, p: *mut f32) { Sixteen::write(values, p) }
    fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
    fn times(values: __m512, by: f32) -> __m512 { _mm512_mul_ps(values, _mm512_set1_ps(by)) }
    fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
    fn mul_add_one(a: __m512, b: f32, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, _mm512_set1_ps(b), c)
    }
    fn lanes(values: __m512) -> [f32; PANEL] { std::mem::transmute(values) }
}
