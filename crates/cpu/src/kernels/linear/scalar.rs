//! The reference arithmetic of products, one output at a time.

use super::{Input, Linear};
use crate::kernels::activations::QuantizedBlock;
use crate::pack::{BLOCK, PANEL, half_at, layout};
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
                Input::Quantized(rows) => {
                    // SAFETY: the caller's promise.
                    let x = unsafe { rows.row(row, weights.columns) };
                    std::array::from_fn(|r| quantized(weights.dtype, bytes, r, x))
                }
                Input::Dense(rows) => {
                    // SAFETY: the caller's promise.
                    let x = unsafe { rows.row(row) };
                    std::array::from_fn(|r| dense(weights.dtype, bytes, r, x))
                }
            };
            // SAFETY: the caller's promise.
            unsafe { linear.store(panel, row, &sums) };
        }
    }
}

fn dense(dtype: DType, panel: &[u8], r: usize, x: &[f32]) -> f32 {
    x.iter().enumerate().fold(0.0, |sum, (column, x)| {
        let w = layout::dense_value(dtype, panel, r, column);
        w.mul_add(*x, sum)
    })
}

fn quantized(dtype: DType, panel: &[u8], r: usize, x: &[QuantizedBlock]) -> f32 {
    match dtype {
        DType::Q4_0 => blocks(panel, layout::q4_0::BYTES, |sum, block, b| {
            let dot = dot(x, b, |c| layout::q4_0::quant(block, r, c));
            (dot as f32).mul_add(half_at(block, r) * x[b].scale, sum)
        }),
        DType::Q4_1 => blocks(panel, layout::q4_1::BYTES, |sum, block, b| {
            let dot = dot(x, b, |c| layout::q4_1::quant(block, r, c));
            let sum = (dot as f32).mul_add(half_at(block, r) * x[b].scale, sum);
            half_at(block, PANEL + r).mul_add(x[b].sum, sum)
        }),
        DType::Q8_0 => blocks(panel, layout::q8_0::BYTES, |sum, block, b| {
            let dot = dot(x, b, |c| layout::q8_0::quant(block, r, c));
            (dot as f32).mul_add(half_at(block, r) * x[b].scale, sum)
        }),
        DType::Q4_K => blocks(panel, layout::q4_k::BYTES, |sum, superblock, s| {
            let (d, dmin) = (half_at(superblock, r), half_at(superblock, PANEL + r));
            let blocks = superblock[layout::q4_k::HEADER..].chunks_exact(layout::q4_k::BLOCK_BYTES);
            blocks.enumerate().fold(sum, |sum, (j, block)| {
                let b = 8 * s + j;
                let dot = dot(x, b, |c| layout::q4_k::quant(block, r, c));
                // Both products are exact: 11 bits times 6.
                let (scale, min) = (d * block[r] as f32, dmin * block[PANEL + r] as f32);
                let sum = (dot as f32).mul_add(scale * x[b].scale, sum);
                (-min).mul_add(x[b].sum, sum)
            })
        }),
        DType::Q6_K => blocks(panel, layout::q6_k::BYTES, |sum, superblock, s| {
            let d = half_at(superblock, r);
            let blocks = superblock[layout::q6_k::HEADER..].chunks_exact(layout::q6_k::BLOCK_BYTES);
            blocks.enumerate().fold(sum, |sum, (j, block)| {
                let b = 8 * s + j;
                // At most 2 * 128 * 16 * 32 * 16256 < 2^31.
                let dot = dot(x, b, |c| {
                    let scale = block[2 * r + c / 16] as i8;
                    scale as i32 * layout::q6_k::quant(block, r, c)
                });
                (dot as f32).mul_add(d * x[b].scale, sum)
            })
        }),
        DType::F32 | DType::F16 | DType::BF16 => {
            unreachable!("dense weights take dense activations")
        }
    }
}

fn blocks(panel: &[u8], bytes: usize, add: impl Fn(f32, &[u8], usize) -> f32) -> f32 {
    panel
        .chunks_exact(bytes)
        .enumerate()
        .fold(0.0, |sum, (b, block)| add(sum, block, b))
}

/// The exact integer product of block `b` of the activations with the weights' values.
fn dot(x: &[QuantizedBlock], b: usize, weight: impl Fn(usize) -> i32) -> i32 {
    (0..BLOCK).map(|c| weight(c) * x[b].integer(c)).sum()
}
