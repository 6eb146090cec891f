//! Products with dense weights: the lanes of a register are the eight rows of a panel, so nothing is ever added across
//! lanes.

use super::lanes;
use super::pieces::{brain_halves, halves};
use crate::kernels::linear::Linear;
use crate::memory::Rows;
use crate::pack::layout::F8;
use crate::pack::{BLOCK, PANEL};
use std::arch::x86_64::*;
use std::ops::Range;

/// Bytes that may be asked for ahead: a part of a second-level cache.
const NEAR: usize = 400 << 10;

/// Bytes ahead in one stream: a page, where processors stop.
const STREAM_AHEAD: usize = 4096;

pub trait DenseElement {
    /// One column of eight rows.
    ///
    /// # Safety
    /// `panel` is one of this type and has the column; the processor has AVX2 and F16C.
    unsafe fn load(panel: *const u8, column: usize) -> __m256;

    /// Two columns, the first of which has an even number.
    ///
    /// # Safety
    /// As for `load`.
    #[inline(always)]
    unsafe fn load_two(panel: *const u8, column: usize) -> [__m256; 2] {
        // SAFETY: the caller's promise.
        unsafe { [Self::load(panel, column), Self::load(panel, column + 1)] }
    }
}

pub struct F32;
pub struct F16;
pub struct Bf16;

impl DenseElement for F32 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(panel.cast::<f32>().add(PANEL * column)) }
    }
}

impl DenseElement for F16 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { halves(panel.add(2 * PANEL * column)) }
    }
}

impl DenseElement for Bf16 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { brain_halves(panel.add(2 * PANEL * column)) }
    }
}

impl DenseElement for F8 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> __m256 {
        // SAFETY: blocks have even numbers of columns, so the other of the two is there.
        unsafe { Self::load_two(panel, column & !1)[column % 2] }
    }

    #[inline(always)]
    unsafe fn load_two(panel: *const u8, column: usize) -> [__m256; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let block = panel.add(column / BLOCK * F8::BLOCK_BYTES);
            let bytes = _mm_loadu_si128(block.add(F8::VALUES + PANEL * (column % BLOCK)).cast());
            // The sign goes to bit 15, and its copy from bit 14; exponent and fraction fall into place.
            let wide = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(bytes));
            let half = _mm256_and_si256(wide, _mm256_set1_epi16(!0x4000));
            let scales = _mm256_loadu_ps(block.cast());
            [
                _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), scales),
                _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256::<1>(half)), scales),
            ]
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
    let pairs = weights.columns / 2 * 2;
    // SAFETY: a panel has eight elements for each of its columns, a row one.
    unsafe {
        // One row reads several panels side by side, in streams that the processor does not follow over their ends: what
        // comes next is asked for. That is the next panels, or where they are too far away these panels' own columns.
        let panel_bytes = weights.panel(panel).len();
        let column_bytes = panel_bytes / weights.columns;
        let ahead = match P * panel_bytes <= NEAR {
            true => P * panel_bytes,
            false => STREAM_AHEAD,
        };
        for column in (0..pairs).step_by(2) {
            for p in 0..P {
                if M == 1 && P > 1 && column.is_multiple_of(4) {
                    // May lie behind the last panel: it is only asked for.
                    let at = panels[p].wrapping_add(column * column_bytes + ahead);
                    _mm_prefetch::<_MM_HINT_T1>(at.cast());
                }
                let w = E::load_two(panels[p], column);
                for m in 0..M {
                    for i in 0..2 {
                        let x = _mm256_broadcast_ss(&*rows[m].add(column + i));
                        sums[m][p] = _mm256_fmadd_ps(w[i], x, sums[m][p]);
                    }
                }
            }
        }
        if pairs < weights.columns {
            for m in 0..M {
                let x = _mm256_broadcast_ss(&*rows[m].add(pairs));
                for p in 0..P {
                    sums[m][p] = _mm256_fmadd_ps(E::load(panels[p], pairs), x, sums[m][p]);
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
