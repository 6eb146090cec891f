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
                    // SAFETY: the caller's promise.
                    let x = unsafe { rows.row(row, weights.columns) };
                    with_layout!(
                        weights.dtype,
                        L => std::array::from_fn(|r| quantized::<L>(bytes, r, x)),
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

fn quantized<L: Layout>(panel: &[u8], r: usize, x: &[QuantizedBlock]) -> f32 {
    let mut sum = 0.0;
    let mut x = x.iter();
    for group in panel.chunks_exact(L::GROUP_BYTES) {
        // Of types with two offsets: scaled once a group.
        let (mut products, mut offsets) = (0.0, 0.0);
        let blocks = group[L::HEADER..].chunks_exact(L::BLOCK_BYTES);
        for (block, x) in blocks.zip(&mut x) {
            // Exact: 32 products of 13 bits with 15 bits stay below 2^31.
            let dot: i32 = (0..BLOCK)
                .map(|c| L::integer(block, r, c) * x.integer(c))
                .sum();
            let (dot, offset) = (dot as f32, |half| L::offset(group, block, r, half));
            if L::OFFSETS == 2 {
                products = dot.mul_add(x.scale, products);
                offsets = offset(0).mul_add(x.first_sum, offsets);
                offsets = offset(1).mul_add(x.last_sum(), offsets);
                continue;
            }
            sum = dot.mul_add(L::scale(group, block, r) * x.scale, sum);
            if L::OFFSETS == 1 {
                sum = offset(1).mul_add(x.sum, sum);
            }
        }
        if L::OFFSETS == 2 {
            sum = f32::mul_add(products, L::scale(group, &[], r), sum);
            sum = f32::mul_add(offsets, L::offset_unit(group, r), sum);
        }
    }
    sum
}
