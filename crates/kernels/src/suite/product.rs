//! Owns the test of one matrix product, against f64.

use super::Bench;
use super::SuiteArgument::{In, Out};
use super::numbers::{close, random, u, words};
use crate::repack;
use crate::select::{self, DeviceProfile, Element, LinearShape, Weight};
use half::f16;

/// A product: sizes, and the three parts of the epilogue and of the row list as bits 0 to 2 of `flags`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub weight: Weight,
    pub element: Element,
    pub out: Element,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub flags: usize,
}

impl Product {
    pub fn sized(self, m: usize, n: usize, k: usize, flags: usize) -> Product {
        Product {
            m,
            n,
            k,
            flags,
            ..self
        }
    }
}

/// The weight's buffers and its numbers. A quantized weight is made of blocks as ggml lays them out, read here without
/// the repacking under test.
fn weights(kind: Weight, element: Element, n: usize, k: usize) -> (Vec<Vec<u8>>, Vec<f64>) {
    let random = random(element, 32, n * k);
    if kind == Weight::Dense {
        let numbers = random.iter().map(|&v| f64::from(v)).collect();
        return (vec![element.encode(&random)], numbers);
    }
    let mut blocks = Vec::new();
    let mut numbers = Vec::new();
    for (at, values) in random.chunks_exact(32).enumerate() {
        let scale = f16::from_f32(0.01 + (at % 7) as f32 * 0.002);
        let offset = f16::from_f32(-0.1 + (at % 5) as f32 * 0.01);
        blocks.extend(scale.to_le_bytes());
        let (d, m) = (scale.to_f64(), offset.to_f64());
        if kind == Weight::Q8_0 {
            let quants: Vec<i8> = values.iter().map(|v| (v * 127.0) as i8).collect();
            blocks.extend(quants.iter().map(|&q| q as u8));
            numbers.extend(quants.iter().map(|&q| f64::from(q) * d));
        } else {
            blocks.extend(offset.to_le_bytes());
            let quants: Vec<u8> = values.iter().map(|v| ((v + 1.0) * 7.99) as u8).collect();
            blocks.extend((0..16).map(|i| quants[i] | quants[i + 16] << 4));
            numbers.extend(quants.iter().map(|&q| f64::from(q) * d + m));
        }
    }
    let planes = match kind {
        Weight::Q8_0 => repack::q8_0(&blocks),
        _ => repack::q4_1(&blocks),
    };
    (vec![planes.quants, planes.scales], numbers)
}

/// Checks a product and gives its bytes.
pub(super) fn computed(
    bench: &mut Bench,
    product: Product,
    profile: &DeviceProfile,
    batch_invariant: bool,
) -> Result<Vec<u8>, String> {
    let Product {
        element, m, n, k, ..
    } = product;
    let [has_bias, has_residual, has_rows] = [1, 2, 4].map(|bit| product.flags & bit != 0);
    let source_rows = m + 3;
    let x_stride = k.next_multiple_of(8) + 8;
    let x = random(element, 31, source_rows * x_stride);
    let (weight_buffers, weight) = weights(product.weight, element, n, k);
    let bias = random(element, 33, n);
    let residual = random(element, 34, m * n);
    let row_list: Vec<u32> = (0..m as u32)
        .map(|r| (r * 7 + 2) % source_rows as u32)
        .collect();
    let mut wanted = vec![0.0; m * n];
    // Of the sums of absolute products: what rounding errors are relative to.
    let mut largest = 0.0_f64;
    for row in 0..m {
        let x_row = if has_rows {
            row_list[row] as usize
        } else {
            row
        };
        let x_row: Vec<f64> = (x[x_row * x_stride..][..k].iter().copied())
            .map(f64::from)
            .collect();
        for column in 0..n {
            let terms = x_row.iter().zip(&weight[column * k..][..k]);
            let (mut sum, mut absolute) = (0.0, 0.0);
            for (a, b) in terms {
                sum += a * b;
                absolute += (a * b).abs();
            }
            largest = largest.max(absolute);
            if has_bias {
                sum += f64::from(bias[column]);
            }
            if has_residual {
                sum += f64::from(residual[row * n + column]);
            }
            wanted[row * n + column] = sum;
        }
    }
    let shape = LinearShape {
        m: m as u32,
        n: n as u32,
        k: k as u32,
        element,
        weight: product.weight,
        out: product.out,
        has_bias,
        has_residual,
        has_rows,
        rows_aligned: k.is_multiple_of(8),
        batch_invariant,
    };
    let choice = select::linear(&shape, profile).ok_or("no kernel for the shape")?;
    let mut out = product.out.poisoned(m * n);
    let mut partials = Element::F32.poisoned(choice.partial_floats);
    let (x, bias, residual) = (
        element.encode(&x),
        element.encode(&bias),
        element.encode(&residual),
    );
    let row_list = words(&row_list);
    let mut arguments = vec![In(&x)];
    arguments.extend(weight_buffers.iter().map(|bytes| In(bytes)));
    arguments.extend([In(&bias), In(&residual), In(&row_list)]);
    arguments.push(Out(if choice.reduce.is_some() {
        &mut partials
    } else {
        &mut out
    }));
    bench.dispatch(
        &choice.main,
        &mut arguments,
        &[
            ("m", u(m)),
            ("n", u(n)),
            ("k", u(k)),
            ("x_stride", u(x_stride)),
            ("residual_stride", u(n)),
            ("out_stride", u(n)),
            ("part_k", u(choice.part_k as usize)),
        ],
    )?;
    if let Some(reduce) = &choice.reduce {
        bench.dispatch(
            reduce,
            &mut [In(&partials), In(&bias), In(&residual), Out(&mut out)],
            &[
                ("m", u(m)),
                ("n", u(n)),
                ("parts", u(choice.parts as usize)),
                ("residual_stride", u(n)),
                ("out_stride", u(n)),
            ],
        )?;
    }
    // Sums in f32, of weights rounded to T where matrices multiply what was quantized; then one rounding.
    let by_matrices = choice.main.threadgroup_bytes > 0;
    let rounds_weights = product.weight != Weight::Dense && by_matrices;
    let weight_rounding = if rounds_weights {
        element.rounding()
    } else {
        0.0
    };
    let absolute = largest * (2f64.powi(-21) + weight_rounding);
    let what = format!("{} {product:?}", choice.main.kernel.host_name);
    let relative = product.out.rounding() * 1.1;
    close(
        &what,
        &product.out.decode(&out),
        &wanted,
        absolute,
        relative,
    )?;
    Ok(out)
}
