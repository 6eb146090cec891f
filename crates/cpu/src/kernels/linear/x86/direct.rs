//! A few rows: each block is widened in registers and multiplied at once, so the weights are read once from memory and
//! written nowhere.

use super::unpack::{Unpack, both_offsets};
use super::{add_products, for_each_eight, lanes, pair, vnni};
use crate::kernels::activations::QuantizedRows;
use crate::kernels::linear::Linear;
use std::arch::x86_64::*;
use std::ops::Range;

/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn avx2<W: Unpack>(linear: &Linear<'_>, x: &QuantizedRows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { all_rows::<W, Avx2>(linear, x, panels) }
}

/// # Safety
/// As for `Linear::run`, and the processor has what `Isa::Avx512` stands for.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512<W: Unpack>(linear: &Linear<'_>, x: &QuantizedRows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { all_rows::<W, Vnni>(linear, x, panels) }
}

pub trait Dot {
    /// Rows of the largest tile: what the registers hold.
    const ROWS: usize;

    /// Adds the products of eight columns with the integers at `x`, for a tile of `M` rows.
    ///
    /// # Safety
    /// The processor has the instructions; eight integers can be read.
    unsafe fn add<const M: usize>(sums: &mut [__m256i; 2], w: &[__m256i; 4], x: *const i16);
}

struct Avx2;
struct Vnni;

impl Dot for Avx2 {
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn add<const M: usize>(sums: &mut [__m256i; 2], w: &[__m256i; 4], x: *const i16) {
        for v in 0..4 {
            // Four rows are chains enough, and leave no registers for more.
            let chain = if M < 4 { v % 2 } else { 0 };
            // SAFETY: the caller's promise.
            sums[chain] = unsafe { add_products(sums[chain], w[v], pair(x.add(2 * v))) };
        }
    }
}

impl Dot for Vnni {
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn add<const M: usize>(sums: &mut [__m256i; 2], w: &[__m256i; 4], x: *const i16) {
        // SAFETY: the caller's promise.
        unsafe {
            sums[0] = add_products_at::<0>(sums[0], w[0], x);
            sums[1] = add_products_at::<4>(sums[1], w[1], x);
            sums[0] = add_products_at::<8>(sums[0], w[2], x);
            sums[1] = add_products_at::<12>(sums[1], w[3], x);
        }
    }
}

vnni! {
    /// Eight pairs of weights.
    add_products_at: "vpdpwssd", "1to8", ymm_reg, __m256i, i16
}

#[inline(always)]
unsafe fn all_rows<W: Unpack, D: Dot>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
) {
    for panel in panels {
        let mut row = 0;
        // SAFETY: the caller's promise; tiles stay below `linear.rows`.
        unsafe {
            while D::ROWS == 8 && row + 8 <= linear.rows {
                tile::<W, D, 8>(linear, x, panel, row);
                row += 8;
            }
            while row + 4 <= linear.rows {
                tile::<W, D, 4>(linear, x, panel, row);
                row += 4;
            }
            if row + 2 <= linear.rows {
                tile::<W, D, 2>(linear, x, panel, row);
                row += 2;
            }
            if row < linear.rows {
                tile::<W, D, 1>(linear, x, panel, row);
            }
        }
    }
}

/// One panel by `M` rows.
#[inline(always)]
unsafe fn tile<W: Unpack, D: Dot, const M: usize>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panel: usize,
    first: usize,
) {
    let weights = linear.weights;
    let bytes = weights.panel(panel);
    // SAFETY: the caller's promise.
    let mut rows = [unsafe { x.row(first, weights.columns) }; M];
    for m in 1..M {
        // SAFETY: the caller's promise.
        rows[m] = unsafe { x.row(first + m, weights.columns) };
    }
    // SAFETY: `group` is a whole group of blocks in this type's layout, and rows have as many blocks as the panel.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); M];
        let mut b = 0;
        for group in bytes.chunks_exact(W::GROUP_BYTES) {
            let group = group.as_ptr();
            for j in 0..W::GROUP_BLOCKS {
                let block = group.add(W::HEADER + j * W::BLOCK_BYTES);
                // Four chains of additions for one row: what waits for long ones fills the processor's queues.
                let mut chains = [[[_mm256_setzero_si256(); 2]; 2]; M];
                for_each_eight!(C, {
                    let w = W::eight::<C>(block);
                    let chain = if M == 1 { C % 2 } else { 0 };
                    for m in 0..M {
                        let x = (*rows[m].as_ptr().add(b)).integers.as_ptr().add(8 * C);
                        D::add::<M>(&mut chains[m][chain], &w, x);
                    }
                });
                let mut dots = [_mm256_setzero_si256(); M];
                for m in 0..M {
                    dots[m] = _mm256_add_epi32(chains[m][0][0], chains[m][0][1]);
                    if M == 1 {
                        let others = _mm256_add_epi32(chains[m][1][0], chains[m][1][1]);
                        dots[m] = _mm256_add_epi32(dots[m], others);
                    }
                }
                let scale = W::scales(group, block);
                let (offset, first) = both_offsets::<W>(group, block);
                for m in 0..M {
                    let x = &*rows[m].as_ptr().add(b);
                    let dot = _mm256_cvtepi32_ps(dots[m]);
                    let scale = _mm256_mul_ps(scale, _mm256_broadcast_ss(&x.scale));
                    sums[m] = _mm256_fmadd_ps(dot, scale, sums[m]);
                    if W::OFFSETS > 0 {
                        sums[m] = _mm256_fmadd_ps(offset, _mm256_broadcast_ss(&x.sum), sums[m]);
                    }
                    if W::OFFSETS == 2 {
                        let x_sum = _mm256_broadcast_ss(&x.first_sum);
                        sums[m] = _mm256_fmadd_ps(first, x_sum, sums[m]);
                    }
                }
                b += 1;
            }
        }
        for (m, sum) in sums.into_iter().enumerate() {
            linear.store(panel, first + m, &lanes(sum));
        }
    }
}
