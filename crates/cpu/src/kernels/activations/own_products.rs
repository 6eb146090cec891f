//! Owns what products of sums are too much on the side of the activations: see the tiles of AVX-512.

use super::QuantizedBlock;
use std::arch::x86_64::*;

/// Of a block's eight pairs of steps, those that are computed as one product of sums.
pub const fn is_of_sums(pair: usize) -> bool {
    !pair.is_multiple_of(3)
}

/// The first step of each such pair.
const FIRSTS: u16 = {
    let mut firsts = 0;
    let mut pair = 0;
    while pair < 8 {
        firsts |= (is_of_sums(pair) as u16) << (2 * pair);
        pair += 1;
    }
    firsts
};

/// By step, those of a block's integers: what is to be added up.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn of_block(integers: __m512i) -> __m512i {
    const NEIGHBOURS: i32 = 0b10_11_00_01;
    let neighbours = _mm512_shuffle_epi32::<NEIGHBOURS>(integers);
    _mm512_maskz_mov_epi32(FIRSTS, _mm512_madd_epi16(integers, neighbours))
}

/// # Safety
/// The processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn write(blocks: &mut [QuantizedBlock]) {
    for block in blocks {
        // SAFETY: 32 integers.
        let integers = unsafe { _mm512_loadu_si512(block.integers.as_ptr().cast()) };
        block.own_products = _mm512_reduce_add_epi32(of_block(integers));
    }
}
