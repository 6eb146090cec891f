//! Products with dense weights: the lanes of two registers are the eight rows of a panel, so nothing is ever added across
//! lanes.

use super::pieces::{Eight, brain_halves, halves, small_floats, times};
use crate::kernels::linear::Linear;
use crate::memory::Rows;
use crate::pack::layout::F8;
use crate::pack::{BLOCK, PANEL};
use std::arch::aarch64::*;
use std::ops::Range;

pub trait DenseElement {
    /// One column of eight rows.
    ///
    /// # Safety
    /// `panel` is one of this type and has the column.
    unsafe fn load(panel: *const u8, column: usize) -> Eight;
}

pub struct F32;
pub struct F16;
pub struct Bf16;

impl DenseElement for F32 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe {
            let p = panel.cast::<f32>().add(PANEL * column);
            [vld1q_f32(p), vld1q_f32(p.add(4))]
        }
    }
}

impl DenseElement for F16 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { halves(panel.add(2 * PANEL * column)) }
    }
}

impl DenseElement for Bf16 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { brain_halves(panel.add(2 * PANEL * column)) }
    }
}

impl DenseElement for F8 {
    #[inline(always)]
    unsafe fn load(panel: *const u8, column: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe {
            let block = panel.add(column / BLOCK * F8::BLOCK_BYTES);
            let scales = block.cast::<f32>();
            let scales = [vld1q_f32(scales), vld1q_f32(scales.add(4))];
            times(
                scales,
                small_floats(block.add(F8::VALUES + PANEL * (column % BLOCK))),
            )
        }
    }
}

/// # Safety
/// As for `Linear::run`.
pub unsafe fn dense<E: DenseElement>(linear: &Linear<'_>, x: Rows, panels: Range<usize>) {
    // A sum is one chain of additions, each waiting for the one before: 16 chains at once keep the units busy.
    let fours = linear.rows / 4 * 4;
    for first in panels.clone().step_by(8) {
        let end = panels.end.min(first + 8);
        // SAFETY: the caller's promise; tiles stay inside `panels` and `linear.rows`.
        unsafe {
            for panel in (first..end).step_by(2) {
                for row in (0..fours).step_by(4) {
                    match panel + 2 <= end {
                        true => dense_tile::<E, 2, 4>(linear, x, panel, row),
                        false => dense_tile::<E, 1, 4>(linear, x, panel, row),
                    }
                }
            }
            for row in fours..linear.rows {
                if end == first + 8 {
                    dense_tile::<E, 8, 1>(linear, x, first, row);
                    continue;
                }
                for panel in first..end {
                    dense_tile::<E, 1, 1>(linear, x, panel, row);
                }
            }
        }
    }
}

/// `P` panels by `M` rows.
///
/// # Safety
/// As for `Linear::run`.
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
    // SAFETY: a panel has eight elements for each of its columns, a row one.
    unsafe {
        let mut sums = [[[vdupq_n_f32(0.0); 2]; P]; M];
        let mut column = 0;
        macro_rules! add_column {
            ($x:ident, $lane:literal) => {
                for p in 0..P {
                    let w = E::load(panels[p], column + $lane);
                    for m in 0..M {
                        for half in 0..2 {
                            let sum = &mut sums[m][p][half];
                            *sum = vfmaq_laneq_f32::<$lane>(*sum, w[half], $x[m]);
                        }
                    }
                }
            };
        }
        let mut x = [vdupq_n_f32(0.0); M];
        while column + 4 <= weights.columns {
            for m in 0..M {
                x[m] = vld1q_f32(rows[m].add(column));
            }
            add_column!(x, 0);
            add_column!(x, 1);
            add_column!(x, 2);
            add_column!(x, 3);
            column += 4;
        }
        while column < weights.columns {
            for m in 0..M {
                x[m] = vdupq_n_f32(*rows[m].add(column));
            }
            add_column!(x, 0);
            column += 1;
        }
        // Written down before anything is called: sums that a call might see would be stored at every column.
        let mut values = [[[0.0; PANEL]; P]; M];
        for m in 0..M {
            for p in 0..P {
                vst1q_f32(values[m][p].as_mut_ptr(), sums[m][p][0]);
                vst1q_f32(values[m][p].as_mut_ptr().add(4), sums[m][p][1]);
            }
        }
        for m in 0..M {
            for p in 0..P {
                linear.store(panel + p, first + m, &values[m][p]);
            }
        }
    }
}
