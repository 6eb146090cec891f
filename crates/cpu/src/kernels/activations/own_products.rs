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

/// # Safety
/// The processor has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn write(blocks: &mut [QuantizedBlock]) {
    const NEIGHBOURS: i32 = 0b10_11_00_01;
    for block in blocks {
        // SAFETY: 32 integers.
        let steps = unsafe { _mm512_loadu_si512(block.integers.as_ptr().cast()) };
        let products = _mm512_madd_epi16(steps, _mm512_shuffle_epi32::<NEIGHBOURS>(steps));
        block.own_products = _mm512_mask_reduce_add_epi32(FIRSTS, products);
    }
}
