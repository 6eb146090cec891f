//! Products: the scalar kernel against f64, every other instruction set against the scalar one, bit for bit.

use super::*;
use crate::memory::{AlignedBytes, Shelf};
use crate::pack::random_blocks;
use mettle_tensor::{DType, TensorView, blocks};

struct Matrix {
    data: AlignedBytes,
    columns: usize,
}

impl Matrix {
    fn filled(rows: usize, columns: usize, value: impl Fn(usize) -> f32) -> Matrix {
        let data = AlignedBytes::zeroed("test", rows * columns * 4).unwrap();
        for i in 0..rows * columns {
            // SAFETY: inside the block just made.
            unsafe { *data.base().cast::<f32>().add(i) = value(i) };
        }
        Matrix { data, columns }
    }

    fn rows(&self) -> Rows {
        // SAFETY: the block holds whole rows and outlives the test's use.
        unsafe { Rows::new(self.data.base().cast(), self.columns, self.columns) }
    }
}

fn activation(i: usize) -> f32 {
    ((i * 7919 % 2003) as f32 - 1001.0) / 311.0
}

/// Runs one product; outputs are NaN or the residual before, so that a column left out shows.
fn run(isa: Isa, w: &PackedMatrix, rows: usize, x: &Matrix, with_extras: bool) -> Vec<u32> {
    let found = run_as(isa, w, rows, x, with_extras, As::Chosen);
    if rows == 1 && w.takes_integers() {
        assert_eq!(run_as(isa, w, rows, x, with_extras, As::Split), found);
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 && w.takes_integers() {
        for of_sums in [false, true] {
            let other = run_as(isa, w, rows, x, with_extras, As::OfSums(of_sums));
            assert!(other == found, "{} rows {rows}, sums: {of_sums}", w.dtype);
        }
    }
    found
}

/// How an instruction set computes a product that has several ways to.
#[derive(PartialEq)]
enum As {
    /// As on this processor.
    Chosen,
    /// One row, split before.
    Split,
    /// With products of sums, or without.
    #[cfg(target_arch = "x86_64")]
    OfSums(bool),
}

fn run_as(
    isa: Isa,
    w: &PackedMatrix,
    rows: usize,
    x: &Matrix,
    with_extras: bool,
    way: As,
) -> Vec<u32> {
    let quantized = QuantizedRows::for_many(isa, rows, w.columns, true).unwrap();
    #[cfg(target_arch = "x86_64")]
    let quantized = match way {
        As::OfSums(of_sums) => quantized.with_own_products(of_sums),
        _ => quantized,
    };
    let is_split = way == As::Split;
    if w.takes_integers() {
        for row in 0..rows {
            // SAFETY: one thread.
            unsafe { quantized.quantize(isa, row, x.rows().row(row)) };
        }
    }
    let bias: Vec<f32> = (0..w.rows).map(|i| i as f32 / 3.0).collect();
    // The residual is the output, as in a plan: what is stored twice shows.
    let out = Matrix::filled(rows, w.rows, |i| match with_extras {
        true => activation(i + 5),
        false => f32::NAN,
    });
    let linear = Linear {
        weights: w,
        input: match w.takes_integers() {
            true if is_split => Input::One(&quantized),
            true => Input::Quantized(&quantized),
            false => Input::Dense(x.rows()),
        },
        bias: with_extras.then_some(&bias),
        residual: with_extras.then(|| out.rows()),
        out: out.rows(),
        rows,
    };
    // Two shares, as two threads would take them.
    let middle = w.panels() / 2;
    // SAFETY: one thread; all matrices have `rows` rows.
    unsafe {
        let mut room = Room::new(w.columns).unwrap();
        if is_split {
            room.split(isa, &quantized, w.columns);
        }
        linear.run(isa, 0..middle, &mut room);
        linear.run(isa, middle..w.panels(), &mut room);
        (0..rows)
            .flat_map(|r| out.rows().row(r).iter().map(|v| v.to_bits()))
            .collect()
    }
}

#[test]
fn all_types_and_row_counts_agree_with_f64_and_with_each_other() {
    for dtype in DType::ALL {
        let columns = 2 * dtype.block_len().max(19);
        for n in [1, 8, 15, 16, 17, 77] {
            let bytes = random_blocks(dtype, n * columns / dtype.block_len(), 3);
            let shape = [n, columns];
            let view = TensorView {
                dtype,
                shape: &shape,
                bytes: (&bytes).into(),
                order: None,
            };
            let packed = PackedMatrix::pack(view, 1, &mut Shelf::default()).unwrap();
            let mut values = vec![0.0; n * columns];
            blocks::dequantize(dtype, &bytes, &mut values).unwrap();
            for rows in (1..=9).chain([16, 33]) {
                let x = Matrix::filled(rows, columns, activation);
                let reference = run(Isa::Scalar, &packed, rows, &x, true);
                for isa in Isa::available() {
                    assert_eq!(
                        run(isa, &packed, rows, &x, true),
                        reference,
                        "{dtype} {isa} n {n} rows {rows}"
                    );
                }
                for row in 0..rows {
                    for column in 0..n {
                        let dot: f64 = (0..columns)
                            .map(|k| {
                                activation(row * columns + k) as f64
                                    * values[column * columns + k] as f64
                            })
                            .sum();
                        let size: f64 = (0..columns)
                            .map(|k| values[column * columns + k].abs() as f64 * 3.3)
                            .sum();
                        let truth = dot
                            + (column as f32 / 3.0) as f64
                            + activation(row * n + column + 5) as f64;
                        let found = f32::from_bits(reference[row * n + column]) as f64;
                        // Half a step of 15-bit activations (3.3 / 32512) in every product, at the worst. Q2_K's minima meet
                        // sums that are rounded too: with these values that fits, which is found, not derived.
                        let allowed = if packed.takes_integers() {
                            size / 32_512.0
                        } else {
                            size * 1e-6
                        };
                        assert!(
                            (found - truth).abs() <= allowed + 1e-5,
                            "{dtype} n {n} row {row} column {column}: {found} {truth}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn long_rows_and_many_of_them_agree_with_the_scalar_kernel() {
    // More columns than are widened at a time, more rows than go over them at once, and a last panel that is not full.
    for dtype in DType::ALL {
        let columns = 9 * 256;
        // Shares of one panel and of two.
        let n = 45;
        let bytes = random_blocks(dtype, n * columns / dtype.block_len(), 9);
        let shape = [n, columns];
        let view = TensorView {
            dtype,
            shape: &shape,
            bytes: (&bytes).into(),
            order: None,
        };
        let packed = PackedMatrix::pack(view, 1, &mut Shelf::default()).unwrap();
        for rows in [1, 3, 4, 131, 143, 144, 145, 155] {
            let x = Matrix::filled(rows, columns, activation);
            let reference = run(Isa::Scalar, &packed, rows, &x, false);
            for isa in Isa::available() {
                let found = run(isa, &packed, rows, &x, false);
                assert!(found == reference, "{dtype} {isa} rows {rows}");
            }
        }
    }
}

#[test]
fn many_panels_agree_with_the_scalar_kernel() {
    // Types that end their sums in different ways, with more blocks than are widened at once; two with more than rows keep at hand.
    for (dtype, columns) in [
        (DType::Q4_1, 26 * 32),
        (DType::Q4_1, 50 * 32),
        (DType::Q2_K, 2048),
        (DType::Q8_0, 26 * 32),
        (DType::Q3_K, 1024),
        (DType::Q2_K, 1024),
    ] {
        // Shares of 3 and 4 panels, of 4 and 5, of 31 and 32, of 32 and 33.
        for panels in [7, 9, 63, 65] {
            let n = 16 * panels - 3;
            let bytes = random_blocks(dtype, n * columns / dtype.block_len(), 13);
            let shape = [n, columns];
            let view = TensorView {
                dtype,
                shape: &shape,
                bytes: (&bytes).into(),
                order: None,
            };
            let packed = PackedMatrix::pack(view, 1, &mut Shelf::default()).unwrap();
            let x = Matrix::filled(17, columns, activation);
            let reference = run(Isa::Scalar, &packed, 17, &x, true);
            for isa in Isa::available() {
                let found = run(isa, &packed, 17, &x, true);
                assert!(found == reference, "{dtype} {isa} n {n}");
            }
        }
    }
}

#[test]
fn dense_panels_side_by_side_agree_with_the_scalar_kernel() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8] {
        // An odd number where blocks allow it.
        let columns = 3 * dtype.block_len().max(11);
        // Shares of 2 and 3 panels, of 4 and 5, of 7 and 8, of 15 and 16.
        for panels in [5, 9, 15, 31] {
            let n = 16 * panels - 3;
            let bytes = random_blocks(dtype, n * columns / dtype.block_len(), 5);
            let shape = [n, columns];
            let view = TensorView {
                dtype,
                shape: &shape,
                bytes: (&bytes).into(),
                order: None,
            };
            let packed = PackedMatrix::pack(view, 1, &mut Shelf::default()).unwrap();
            for rows in [1, 6, 12, 19] {
                let x = Matrix::filled(rows, columns, activation);
                let reference = run(Isa::Scalar, &packed, rows, &x, true);
                for isa in Isa::available() {
                    let found = run(isa, &packed, rows, &x, true);
                    assert!(found == reference, "{dtype} {isa} n {n} rows {rows}");
                }
            }
        }
    }
}

#[test]
fn extreme_quants_stay_exact() {
    // Largest magnitudes everywhere: a 16-bit sum that saturated would show.
    for dtype in DType::ALL
        .into_iter()
        .filter(|d| d.block_len() > 1 && *d != DType::F8)
    {
        // The last has Q6_K's largest sub-scale beside its largest value.
        for (fill, last) in [
            (0x00, 0x00),
            (0x7f, 0x7f),
            (0x80, 0x80),
            (0xff, 0xff),
            (0x00, 0x80),
        ] {
            let columns = 512;
            let count = 16 * columns / dtype.block_len();
            let mut bytes = random_blocks(dtype, count, 1);
            for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
                // All but the floats.
                let integers = match dtype {
                    DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => 4..block.len(),
                    DType::Affine8 => 4..block.len(),
                    DType::Q2_K => 0..80,
                    DType::Q3_K => 0..108,
                    DType::Q6_K => 0..208,
                    DType::MXFP4 => 1..block.len(),
                    _ => 2..block.len(),
                };
                let end = integers.end;
                block[integers].fill(fill);
                if dtype == DType::Q6_K {
                    block[end - 16..end].fill(last);
                }
            }
            let shape = [16, columns];
            let view = TensorView {
                dtype,
                shape: &shape,
                bytes: (&bytes).into(),
                order: None,
            };
            let packed = PackedMatrix::pack(view, 1, &mut Shelf::default()).unwrap();
            // All integers the largest, or all but one in each block what has the most negative low byte when it is split.
            for (largest, others) in [(127.0, 127.0), (-127.0, -127.0), (127.0, 126.5)] {
                for rows in [1, 5, 9] {
                    let x = Matrix::filled(rows, columns, |i| match i % 32 {
                        0 => largest,
                        _ => others,
                    });
                    let reference = run(Isa::Scalar, &packed, rows, &x, false);
                    for isa in Isa::available() {
                        let found = run(isa, &packed, rows, &x, false);
                        assert_eq!(
                            found, reference,
                            "{dtype} {isa} {fill:#x} {last:#x} {others} rows {rows}"
                        );
                    }
                }
            }
        }
    }
}
