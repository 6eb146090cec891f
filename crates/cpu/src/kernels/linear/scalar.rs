//! The reference arithmetic of products, one output at a time.

use super::{Input, Linear};
use crate::kernels::activations::QuantizedBlock;
use crate::pack::layout::{self, F8, Layout, with_layout};
use crate::pack::{BLOCK, PANEL};
use mettle_tensor::DType;
use std::ops::Range;

/// # Safety
/// As for `Linear::run`.
pub unsafe fn run(linear: &Linear<'_>, panels: Range<usize>) {
    let weights = linear.weights;
    for panel in panels {
        let bytes = weights.panel(panel);
        for row in 0..linear.rows {
            let sums: [f32; PANEL] = match linear.input {
                Input::Quantized(rows) | Input::One(rows) => {
                    with_layout!(
                        weights.dtype,
                        L => {
                            // SAFETY: the caller's promise.
                            let (x, sums) = unsafe {
                                (rows.row(row, weights.columns), rows.sums_for(L::OFFSETS, row, weights.columns))
                            };
                            std::array::from_fn(|r| quantized::<L>(bytes, r, x, sums))
                        },
                        dense => unreachable!("dense weights take dense activations")
                    )
                }
                Input::Dense(rows) => {
                    // SAFETY: the caller's promise.
                    let x = unsafe { rows.row(row) };
                    std::array::from_fn(|r| dense(weights.dtype, bytes, r, x))
                }
            };
            // SAFETY: the caller's promise.
            unsafe { linear.store(panel * PANEL, row, &sums) };
        }
    }
}

fn dense(dtype: DType, panel: &[u8], r: usize, x: &[f32]) -> f32 {
    if dtype == DType::F8 {
        return small_floats(panel, r, x);
    }
    x.iter().enumerate().fold(0.0, |sum, (column, x)| {
        let w = layout::dense::value(dtype, panel, r, column);
        w.mul_add(*x, sum)
    })
}

/// Each block's sum, then times its scale.
fn small_floats(panel: &[u8], r: usize, x: &[f32]) -> f32 {
    let blocks = panel.chunks_exact(F8::BLOCK_BYTES);
    blocks
        .zip(x.chunks_exact(BLOCK))
        .fold(0.0, |sum, (block, x)| {
            let part = x.iter().enumerate().fold(0.0, |sum, (column, x)| {
                F8::unscaled(block, r, column).mul_add(*x, sum)
            });
            f32::mul_add(part, F8::scale(block, r), sum)
        })
}

/// `sums` are those that 16 offsets a group take.
fn quantized<L: Layout>(
    panel: &[u8],
    r: usize,
    x: &[QuantizedBlock],
    sums: &[QuantizedBlock],
) -> f32 {
    const { L::IS_KNOWN };
    const { L::FITS };
    let mut sum = 0.0;
    let mut x = x.iter();
    for (g, group) in panel.chunks_exact(L::GROUP_BYTES).enumerate() {
        let mut products = 0.0;
        let blocks = group[L::HEADER..].chunks_exact(L::BLOCK_BYTES);
        for (block, x) in blocks.zip(&mut x) {
            // Exact: see `Layout::FITS`.
            let dot: i32 = (0..BLOCK)
                .map(|c| L::integer(block, r, c) * x.integer(c))
                .sum();
            let dot = dot as f32;
            if L::SCALES_GROUPS {
                products = dot.mul_add(x.scale, products);
            } else {
                sum = dot.mul_add(L::scale(group, block, r) * x.scale, sum);
            }
            if L::OFFSETS == 1 {
                sum = L::offset(group, block, r).mul_add(x.sum, sum);
            }
        }
        if L::SCALES_GROUPS {
            sum = f32::mul_add(products, L::scale(group, &[], r), sum);
        }
        if L::OFFSETS == 16 {
            let x = &sums[g];
            let dot: i32 = (0..16)
                .map(|i| L::offset_of_sixteen(group, r, i) * x.integer(i))
                .sum();
            sum = (dot as f32).mul_add(L::offset_unit(group, r) * x.scale, sum);
        }
    }
    sum
}
