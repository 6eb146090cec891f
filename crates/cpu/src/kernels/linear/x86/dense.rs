//! Products with dense weights: the lanes of a register are the eight rows of a panel, so nothing is ever added across
//! lanes.

use super::lanes;
use crate::kernels::linear::Linear;
use crate::memory::Rows;
use crate::pack::PANEL;
use std::arch::x86_64::*;
use std::ops::Range;

pub trait DenseElement {
    const BYTES: usize;
    /// # Safety
    /// Eight elements can be read at `p`; the processor has AVX2 and F16C.
    unsafe fn load(p: *const u8) -> __m256;
}

pub struct F32;
pub struct F16;
pub struct Bf16;

impl DenseElement for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(p.cast()) }
    }
}

impl DenseElement for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
}

impl DenseElement for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))
        }
    }
}

/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn dense<E: DenseElement>(linear: &Linear<'_>, x: Rows, panels: Range<usize>) {
    let mut panel = panels.start;
    // A sum is one chain of additions, each waiting for the one before: eight chains at once keep the units busy.
    // SAFETY: the caller's promise; tiles stay inside `panels` and `linear.rows`.
    unsafe {
        while panel + 2 <= panels.end {
            let mut row = 0;
            while row + 4 <= linear.rows {
                dense_tile::<E, 2, 4>(linear, x, panel, row);
                row += 4;
            }
            while row < linear.rows && panel + 8 > panels.end {
                dense_tile::<E, 2, 1>(linear, x, panel, row);
                row += 1;
            }
            if row < linear.rows {
                // The last rows of eight panels together; then the first rows of the other six.
                for row in row..linear.rows {
                    dense_tile::<E, 8, 1>(linear, x, panel, row);
                }
                for panel in (panel + 2..panel + 8).step_by(2) {
                    for row in (0..row).step_by(4) {
                        dense_tile::<E, 2, 4>(linear, x, panel, row);
                    }
                }
                panel += 8;
            } else {
                panel += 2;
            }
        }
        for row in 0..if panel < panels.end { linear.rows } else { 0 } {
            dense_tile::<E, 1, 1>(linear, x, panel, row);
        }
    }
}

/// `P` panels by `M` rows.
///
/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dense_tile<E: DenseElement, const P: usize, const M: usize>(
    linear: &Linear<'_>,
    x: Rows,
    panel: usize,
    first: usize,
) {
    let weights = linear.weights;
    let panels: [*const u8; P] = std::array::from_fn(|p| weights.panel(panel + p).as_ptr());
    // SAFETY: the caller's promise.
    let rows: [&[f32]; M] = std::array::from_fn(|m| unsafe { x.row(first + m) });
    let rows = rows.map(|row| row[..weights.columns].as_ptr());
    let mut sums = [[_mm256_setzero_ps(); P]; M];
    for column in 0..weights.columns {
        // SAFETY: a panel has eight elements for each of its columns, a row one.
        unsafe {
            let mut w = [_mm256_setzero_ps(); P];
            for p in 0..P {
                w[p] = E::load(panels[p].add(column * PANEL * E::BYTES));
            }
            for m in 0..M {
                let x = _mm256_broadcast_ss(&*rows[m].add(column));
                for p in 0..P {
                    sums[m][p] = _mm256_fmadd_ps(w[p], x, sums[m][p]);
                }
            }
        }
    }
    for (m, sums) in sums.into_iter().enumerate() {
        for (p, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { linear.store(panel + p, first + m, &lanes(sum)) };
        }
    }
}
