//! Products with dense weights: the lanes of four registers are the rows of a panel, so nothing is ever added across lanes.

use super::pieces::{Eight, brain_halves, floats, halves, small_floats};
use super::wide::HALF;
use crate::kernels::linear::Linear;
use crate::memory::Rows;
use crate::pack::layout::F8;
use crate::pack::{BLOCK, PANEL};
use std::arch::aarch64::*;
use std::ops::Range;

/// Panels that a row alone is multiplied with at a time.
const TOGETHER: usize = 4;

pub trait DenseElement {
    /// Bytes of the scales that each block of 32 columns starts with, if it does.
    const SCALES: usize = 0;
    /// What products are multiplied with: a power of two.
    const LARGER: f32 = 1.0;
    const BYTES: usize;

    /// One column of half a panel, from where the columns start.
    ///
    /// # Safety
    /// The columns are there.
    unsafe fn load(columns: *const u8, column: usize, r: usize) -> Eight;
}

pub struct F32;
pub struct F16;
pub struct Bf16;

impl DenseElement for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load(columns: *const u8, column: usize, r: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { floats(columns.add(4 * PANEL * column).cast(), r) }
    }
}

impl DenseElement for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load(columns: *const u8, column: usize, r: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { halves(columns.add(2 * PANEL * column), r) }
    }
}

impl DenseElement for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load(columns: *const u8, column: usize, r: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { brain_halves(columns.add(2 * PANEL * column), r) }
    }
}

impl DenseElement for F8 {
    const SCALES: usize = F8::VALUES;
    const LARGER: f32 = F8::LARGER;
    const BYTES: usize = 1;

    #[inline(always)]
    unsafe fn load(columns: *const u8, column: usize, r: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { small_floats(columns.add(PANEL * column), r) }
    }
}

/// # Safety
/// As for `Linear::run`.
pub unsafe fn dense<E: DenseElement>(linear: &Linear<'_>, x: Rows, panels: Range<usize>) {
    // A sum is one chain of additions, each waiting for the one before: 16 chains at once keep the units busy.
    let fours = linear.rows / 4 * 4;
    for first in panels.clone().step_by(TOGETHER) {
        let end = panels.end.min(first + TOGETHER);
        // SAFETY: the caller's promise; tiles stay inside `panels` and `linear.rows`.
        unsafe {
            for panel in first..end {
                for row in (0..fours).step_by(4) {
                    tile::<E, 1, 4>(linear, x, panel, row);
                }
            }
            for row in fours..linear.rows {
                if end == first + TOGETHER {
                    tile::<E, TOGETHER, 1>(linear, x, first, row);
                    continue;
                }
                for panel in first..end {
                    tile::<E, 1, 1>(linear, x, panel, row);
                }
            }
        }
    }
}

/// A value for each row of a panel.
type Panel = [Eight; 2];

/// `N` panels by `M` rows.
///
/// # Safety
/// As for `Linear::run`.
unsafe fn tile<E: DenseElement, const N: usize, const M: usize>(
    linear: &Linear<'_>,
    x: Rows,
    panel: usize,
    first: usize,
) {
    let weights = linear.weights;
    let mut panels: [*const u8; N] = std::array::from_fn(|n| weights.panel(panel + n).as_ptr());
    // SAFETY: the caller's promise.
    let rows: [&[f32]; M] = std::array::from_fn(|m| unsafe { x.row(first + m) });
    let mut rows = rows.map(|row| row[..weights.columns].as_ptr());
    // SAFETY: a panel has an element of each row for each of its columns, an input row one.
    unsafe {
        let zero = [[vdupq_n_f32(0.0); 2]; 2];
        let mut sums = [[zero; N]; M];
        if E::SCALES == 0 {
            add::<E, N, M>(&mut sums, &panels, &rows, weights.columns);
        } else {
            // Whole blocks, each multiplied with its scales at the end.
            for _ in 0..weights.columns / BLOCK {
                let mut parts = [[zero; N]; M];
                let columns = panels.map(|panel| panel.add(E::SCALES));
                add::<E, N, M>(&mut parts, &columns, &rows, BLOCK);
                for n in 0..N {
                    for half in 0..2 {
                        let scales = floats(panels[n].cast(), HALF * half);
                        for m in 0..M {
                            let (sum, part) = (&mut sums[m][n][half], parts[m][n][half]);
                            for i in 0..2 {
                                sum[i] = vfmaq_f32(sum[i], part[i], scales[i]);
                            }
                        }
                    }
                    panels[n] = columns[n].add(BLOCK * PANEL * E::BYTES);
                }
                rows = rows.map(|row| row.add(BLOCK));
            }
        }
        // Written down before anything is called: sums that a call might see would be stored at every column.
        let mut values = [[[0.0; PANEL]; N]; M];
        for m in 0..M {
            for n in 0..N {
                for i in 0..4 {
                    vst1q_f32(
                        values[m][n].as_mut_ptr().add(4 * i),
                        sums[m][n][i / 2][i % 2],
                    );
                }
            }
        }
        for m in 0..M {
            for n in 0..N {
                linear.store((panel + n) * PANEL, first + m, &values[m][n]);
            }
        }
    }
}

/// Adds the products of so many columns.
///
/// # Safety
/// They are there, and values of the rows.
#[inline(always)]
unsafe fn add<E: DenseElement, const N: usize, const M: usize>(
    sums: &mut [[Panel; N]; M],
    columns: &[*const u8; N],
    rows: &[*const f32; M],
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut column = 0;
        macro_rules! add_column {
            ($x:ident, $lane:literal) => {
                for n in 0..N {
                    for half in 0..2 {
                        let w = E::load(columns[n], column + $lane, HALF * half);
                        for m in 0..M {
                            for i in 0..2 {
                                let sum = &mut sums[m][n][half][i];
                                *sum = vfmaq_laneq_f32::<$lane>(*sum, w[i], $x[m]);
                            }
                        }
                    }
                }
            };
        }
        let mut x = [vdupq_n_f32(0.0); M];
        while column + 4 <= count {
            for m in 0..M {
                x[m] = vld1q_f32(rows[m].add(column));
                if E::LARGER != 1.0 {
                    x[m] = vmulq_n_f32(x[m], E::LARGER);
                }
            }
            add_column!(x, 0);
            add_column!(x, 1);
            add_column!(x, 2);
            add_column!(x, 3);
            column += 4;
        }
        while column < count {
            for m in 0..M {
                x[m] = vdupq_n_f32(*rows[m].add(column) * E::LARGER);
            }
            add_column!(x, 0);
            column += 1;
        }
    }
}
