//! Owns the rounding of sixteen blocks together, in AVX-512's registers: what is one value a block is computed once for all of them.

#![allow(
    clippy::needless_range_loop,
    reason = "iterator adapters are compiled without the kernels' instructions and may stay calls"
)]

use super::own_products::of_block;
use super::{LARGEST, LEAST, QuantizedBlock};
use crate::kernels::order;
use crate::lanes::{across_four, across_fours};
use crate::pack::BLOCK;
use std::arch::x86_64::*;

pub const BLOCKS: usize = 16;

/// Which half of each place's integer comes from: those of the first 16 columns, then those of the last.
static FROM: [i16; BLOCK] = {
    let mut from = [0; BLOCK];
    let mut column = 0;
    while column < BLOCK {
        from[order::place_of(column)] = 2 * column as i16;
        column += 1;
    }
    from
};

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn larger(a: __m512, b: __m512) -> __m512 {
    let larger = _mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b));
    _mm512_castsi512_ps(larger)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn sum(a: __m512, b: __m512) -> __m512 {
    let sum = _mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b));
    _mm512_castsi512_ps(sum)
}

/// What `quantize_row` writes, and the blocks' own products; nothing if a value is not finite.
///
/// # Safety
/// The processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn quantize(x: &[[f32; BLOCK]; BLOCKS], out: &mut [QuantizedBlock; BLOCKS]) -> bool {
    let magnitude = _mm512_set1_ps(f32::from_bits(0x7fff_ffff));
    let halves = |block: usize| {
        let x = x[block].as_ptr();
        // SAFETY: 32 values.
        unsafe { [_mm512_loadu_ps(x), _mm512_loadu_ps(x.add(16))] }
    };
    let mut fours = [_mm512_setzero_ps(); 4];
    for f in 0..4 {
        let mut blocks = [_mm512_setzero_ps(); 4];
        for i in 0..4 {
            let [first, last] = halves(4 * f + i);
            let [first, last] = [first, last].map(|half| {
                _mm512_and_si512(_mm512_castps_si512(half), _mm512_castps_si512(magnitude))
            });
            blocks[i] = _mm512_castsi512_ps(_mm512_max_epi32(first, last));
        }
        fours[f] = across_four!(blocks, larger);
    }
    let largest = across_fours!(fours, larger);
    let too_large = _mm512_set1_epi32(0x7f80_0000);
    if _mm512_cmpge_epi32_mask(_mm512_castps_si512(largest), too_large) != 0 {
        return false;
    }
    let counts = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(largest, _mm512_set1_ps(LEAST));
    let most = _mm512_set1_ps(LARGEST);
    let scales = _mm512_maskz_div_ps(counts, largest, most);
    let mut inverses = [0.0; BLOCKS];
    // SAFETY: 16 values; 32 halves.
    let from = unsafe {
        _mm512_storeu_ps(
            inverses.as_mut_ptr(),
            _mm512_maskz_div_ps(counts, most, largest),
        );
        _mm512_loadu_si512(FROM.as_ptr().cast())
    };
    let (mut sums, mut own_products) = (fours, fours);
    for f in 0..4 {
        let (mut blocks, mut own) = ([_mm512_setzero_ps(); 4], [_mm512_setzero_ps(); 4]);
        for i in 0..4 {
            let block = 4 * f + i;
            let inverse = _mm512_set1_ps(inverses[block]);
            // To the nearest, and never beyond the largest: an inverse is at most half a last place too large.
            let [first, last] =
                halves(block).map(|half| _mm512_cvtps_epi32(_mm512_mul_ps(half, inverse)));
            let integers = _mm512_permutex2var_epi16(first, from, last);
            // SAFETY: 32 integers.
            unsafe { _mm512_storeu_si512(out[block].integers.as_mut_ptr().cast(), integers) };
            blocks[i] = _mm512_castsi512_ps(_mm512_add_epi32(first, last));
            own[i] = _mm512_castsi512_ps(of_block(integers));
        }
        sums[f] = across_four!(blocks, sum);
        own_products[f] = across_four!(own, sum);
    }
    let sums = _mm512_cvtepi32_ps(_mm512_castps_si512(across_fours!(sums, sum)));
    let own_products = across_fours!(own_products, sum);
    let (mut of_scales, mut of_sums, mut of_products) = ([0.0; 16], [0.0; 16], [0_i32; 16]);
    // SAFETY: 16 values each.
    unsafe {
        _mm512_storeu_ps(of_scales.as_mut_ptr(), scales);
        _mm512_storeu_ps(of_sums.as_mut_ptr(), _mm512_mul_ps(scales, sums));
        _mm512_storeu_ps(of_products.as_mut_ptr().cast(), own_products);
    }
    for block in 0..BLOCKS {
        out[block].scale = of_scales[block];
        out[block].sum = of_sums[block];
        out[block].own_products = of_products[block];
    }
    true
}
