//! Owns the tests of kernels that work row by row, against f64.

use super::SuiteArgument::{In, InOut, Out};
use super::numbers::{HALVES, check, close, f, random, u, words};
use super::{Bench, Case};
use crate::select::{self, Element};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for element in HALVES {
        let suffix = element.suffix();
        for width in [1, 33, 576, 1000, 4100] {
            cases.push(Case::new(
                format!("rms_norm/{suffix}/width{width}"),
                move |bench| {
                    rms_norm(bench, element, width, false, true)?;
                    rms_norm(bench, element, width, true, true)?;
                    rms_norm(bench, element, width, true, false)
                },
            ));
        }
        let mut once = |name: &str, body: fn(&mut Bench, Element) -> Result<(), String>| {
            let name = format!("once/{name}_{suffix}");
            cases.push(Case::new(name, move |bench| body(bench, element)));
        };
        once("rms_norm", |b, e| rms_norm(b, e, 4100, true, true));
        once("head_norm", head_norm);
        once("silu_mul", silu_mul);
        once("add", add);
        once("embed", embed);
        once("embed_q8_0", embed_q8_0);
        once("embed_q4_1", embed_q4_1);
        once("gather", gather);
    }
    cases
}

fn rms_norm(
    bench: &mut Bench,
    element: Element,
    width: usize,
    has_add: bool,
    has_weight: bool,
) -> Result<(), String> {
    let (rows, stride, eps) = (3, width + 5, 1e-5_f32);
    let x = random(element, 1, rows * stride);
    let add = random(element, 2, rows * width);
    let weight = random(element, 3, width);
    let mut wanted = vec![f64::NAN; rows * width];
    let mut sums = x.clone();
    for row in 0..rows {
        for c in 0..width {
            if has_add {
                sums[row * stride + c] = element.round(x[row * stride + c] + add[row * width + c]);
            }
        }
        let values = &sums[row * stride..row * stride + width];
        let square: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        let scale = 1.0 / (square / width as f64 + f64::from(eps)).sqrt();
        for c in 0..width {
            let weight = f64::from(weight[c]) + 0.5;
            let factor = if has_weight { weight } else { 1.0 };
            wanted[row * width + c] = f64::from(values[c]) * scale * factor;
        }
    }
    let mut x = element.encode(&x);
    let mut out = element.poisoned(rows * width);
    bench.dispatch(
        &select::rms_norm(element, rows as u32, has_add, has_weight),
        &mut [
            InOut(&mut x),
            In(&element.encode(&add)),
            In(&element.encode(&weight)),
            Out(&mut out),
        ],
        &[
            ("width", u(width)),
            ("x_stride", u(stride)),
            ("add_stride", u(width)),
            ("out_stride", u(width)),
            ("eps", f(eps)),
            ("weight_offset", f(0.5)),
        ],
    )?;
    // One rounding of the result, and f32 sums below it.
    let rounding = element.rounding() * 1.1;
    close("out", &element.decode(&out), &wanted, 1e-6, rounding)?;
    check(element.decode(&x) == sums, || "x holds no sum".into())
}

/// Gate and up from one buffer.
fn silu_mul(bench: &mut Bench, element: Element) -> Result<(), String> {
    let (rows, width) = (5, 300);
    let gate_up: Vec<f32> = random(element, 7, rows * 2 * width)
        .iter()
        .map(|v| element.round(v * 20.0))
        .collect();
    let wanted: Vec<f64> = (0..rows * width)
        .map(|i| {
            let at = i / width * 2 * width + i % width;
            let (gate, up) = (f64::from(gate_up[at]), f64::from(gate_up[at + width]));
            gate / (1.0 + (-gate).exp()) * up
        })
        .collect();
    let both = element.encode(&gate_up);
    let stride = width + 5;
    let mut out = element.poisoned(rows * stride);
    bench.dispatch(
        &select::elementwise("silu_mul", element, rows as u32, width as u32),
        &mut [
            In(&both),
            In(&both[width * element.bytes()..]),
            Out(&mut out),
        ],
        &[
            ("width", u(width)),
            ("gate_stride", u(2 * width)),
            ("up_stride", u(2 * width)),
            ("out_stride", u(stride)),
        ],
    )?;
    let out = element.decode(&out);
    let (written, kept): (Vec<&[f32]>, Vec<&[f32]>) =
        out.chunks(stride).map(|row| row.split_at(width)).unzip();
    check(kept.concat().iter().all(|v| v.is_nan()), || {
        "columns behind the row were written".into()
    })?;
    let rounding = element.rounding() * 1.1;
    close("out", &written.concat(), &wanted, 1e-6, rounding)
}

fn add(bench: &mut Bench, element: Element) -> Result<(), String> {
    let (rows, width, a_stride, b_stride) = (4, 260, 263, 270);
    let a = random(element, 13, rows * a_stride);
    let b = random(element, 14, rows * b_stride);
    let wanted: Vec<f64> = (0..rows * width)
        .map(|i| (i / width, i % width))
        .map(|(row, c)| f64::from(a[row * a_stride + c]) + f64::from(b[row * b_stride + c]))
        .collect();
    let mut out = element.poisoned(rows * width);
    bench.dispatch(
        &select::elementwise("add", element, rows as u32, width as u32),
        &mut [
            In(&element.encode(&a)),
            In(&element.encode(&b)),
            Out(&mut out),
        ],
        &[
            ("width", u(width)),
            ("a_stride", u(a_stride)),
            ("b_stride", u(b_stride)),
            ("out_stride", u(width)),
        ],
    )?;
    let rounding = element.rounding() * 1.001;
    close("out", &element.decode(&out), &wanted, 0.0, rounding)
}

const IDS: [u32; 5] = [3, 49, 0, 3, 17];
const VOCABULARY: usize = 50;
/// The last is none of the table's, and gives zeros.
const EMBED_IDS: [u32; 6] = [3, 49, 0, 3, 17, VOCABULARY as u32];

/// Runs an embedding; `table` holds its buffers.
fn embed_from(
    bench: &mut Bench,
    name: &str,
    element: Element,
    width: usize,
    scale: f32,
    table: &[&[u8]],
) -> Result<Vec<f32>, String> {
    let ids = words(&EMBED_IDS);
    let mut out = element.poisoned(EMBED_IDS.len() * width);
    let mut arguments = vec![In(&ids)];
    arguments.extend(table.iter().map(|bytes| In(bytes)));
    arguments.push(Out(&mut out));
    bench.dispatch(
        &select::elementwise(name, element, EMBED_IDS.len() as u32, width as u32),
        &mut arguments,
        &[
            ("width", u(width)),
            ("vocabulary", u(VOCABULARY)),
            ("out_stride", u(width)),
            ("scale", f(scale)),
        ],
    )?;
    Ok(element.decode(&out))
}

/// The rows that `ids` name of a table of numbers.
fn named_rows(ids: &[u32], width: usize, number: impl Fn(usize) -> f64) -> Vec<f64> {
    let columns = ids
        .iter()
        .flat_map(|&id| (0..width).map(move |c| (id as usize, c)));
    columns
        .map(|(id, c)| match id < VOCABULARY {
            true => number(id * width + c),
            false => 0.0,
        })
        .collect()
}

fn embed(bench: &mut Bench, element: Element) -> Result<(), String> {
    let width = 70;
    let table = random(element, 9, VOCABULARY * width);
    let bytes = element.encode(&table);
    let got = embed_from(bench, "embed", element, width, 2.0, &[&bytes])?;
    let wanted = named_rows(&EMBED_IDS, width, |at| f64::from(table[at]) * 2.0);
    close("out", &got, &wanted, 0.0, 0.0)
}

fn embed_q8_0(bench: &mut Bench, element: Element) -> Result<(), String> {
    let width = 64;
    let quants: Vec<i8> = (0..VOCABULARY * width)
        .map(|i| (i as i32 * 37 % 255 - 127) as i8)
        .collect();
    let scales: Vec<f32> = (0..VOCABULARY * width / 32)
        .map(|i| Element::F16.round(1.0 / (1 + i) as f32))
        .collect();
    let bytes: Vec<u8> = quants.iter().map(|&q| q as u8).collect();
    let table: [&[u8]; 2] = [&bytes, &Element::F16.encode(&scales)];
    let got = embed_from(bench, "embed_q8_0", element, width, 1.0, &table)?;
    let wanted = named_rows(&EMBED_IDS, width, |at| {
        f64::from(quants[at]) * f64::from(scales[at / 32])
    });
    close("out", &got, &wanted, 1e-7, element.rounding() * 1.1)
}

fn embed_q4_1(bench: &mut Bench, element: Element) -> Result<(), String> {
    let width = 96;
    let quants: Vec<u8> = (0..VOCABULARY * width)
        .map(|i| (i * 7 % 16) as u8)
        .collect();
    let bytes: Vec<u8> = quants.chunks_exact(2).map(|q| q[0] | q[1] << 4).collect();
    let scales = random(Element::F16, 15, VOCABULARY * width / 16);
    let table: [&[u8]; 2] = [&bytes, &Element::F16.encode(&scales)];
    let got = embed_from(bench, "embed_q4_1", element, width, 1.5, &table)?;
    let wanted = named_rows(&EMBED_IDS, width, |at| {
        let (scale, offset) = (scales[at / 32 * 2], scales[at / 32 * 2 + 1]);
        (f64::from(quants[at]) * f64::from(scale) + f64::from(offset)) * 1.5
    });
    close("out", &got, &wanted, 1e-6, element.rounding() * 1.1)
}

fn gather(bench: &mut Bench, element: Element) -> Result<(), String> {
    let width = 70;
    let table = random(element, 10, VOCABULARY * width);
    let mut out = element.poisoned(IDS.len() * width);
    bench.dispatch(
        &select::elementwise("gather", element, IDS.len() as u32, width as u32),
        &mut [In(&element.encode(&table)), In(&words(&IDS)), Out(&mut out)],
        &[
            ("width", u(width)),
            ("x_stride", u(width)),
            ("out_stride", u(width)),
        ],
    )?;
    let wanted = named_rows(&IDS, width, |at| f64::from(table[at]));
    close("out", &element.decode(&out), &wanted, 0.0, 0.0)
}

/// In place, on columns of a wider row.
fn head_norm(bench: &mut Bench, element: Element) -> Result<(), String> {
    let (tokens, heads, head_dim, stride) = (4, 3, 80, 300);
    let x = random(element, 11, tokens * stride);
    let weight = random(element, 12, head_dim);
    let mut wanted: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
    for head in wanted
        .chunks_mut(stride)
        .flat_map(|row| row[..heads * head_dim].chunks_mut(head_dim))
    {
        let square: f64 = head.iter().map(|v| v * v).sum();
        let scale = 1.0 / (square / head_dim as f64 + 1e-6_f32 as f64).sqrt();
        (head.iter_mut().zip(&weight)).for_each(|(v, &w)| *v *= scale * f64::from(w));
    }
    let mut x = element.encode(&x);
    bench.dispatch(
        &select::head_norm(element, tokens as u32, heads as u32),
        &mut [InOut(&mut x), In(&element.encode(&weight))],
        &[
            ("head_dim", u(head_dim)),
            ("x_stride", u(stride)),
            ("eps", f(1e-6)),
            ("weight_offset", f(0.0)),
        ],
    )?;
    let rounding = element.rounding() * 1.1;
    close("x", &element.decode(&x), &wanted, 1e-6, rounding)
}
