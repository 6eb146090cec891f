//! Owns the tests of matrix products, against f64.

use crate::support::*;
use half::f16;
use mettle_kernels::emulator::Buffer;
use mettle_kernels::repack;

#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    bias: bool,
    residual: bool,
    rows: bool,
}

#[derive(Clone, Copy, Debug)]
enum Tile {
    Small { rows: usize, columns: usize },
    Matrix { m: usize, n: usize, k: usize },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Weights {
    Dense,
    Q8_0,
    Q4_1,
}

/// The weight's buffers, what its kernels have in their names, and its numbers. A quantized weight is made of blocks as
/// ggml lays them out, read here without the repacking under test.
fn weights(
    kind: Weights,
    storage: Storage,
    n: usize,
    k: usize,
) -> (Vec<Buffer>, &'static str, Vec<f64>) {
    let random = random(storage, 32, n * k);
    if kind == Weights::Dense {
        let numbers = random.iter().map(|&v| f64::from(v)).collect();
        return (vec![storage.buffer(&random)], "", numbers);
    }
    let mut blocks = Vec::new();
    let mut numbers = Vec::new();
    for (at, values) in random.chunks_exact(32).enumerate() {
        let scale = f16::from_f32(0.01 + (at % 7) as f32 * 0.002);
        let offset = f16::from_f32(-0.1 + (at % 5) as f32 * 0.01);
        blocks.extend(scale.to_le_bytes());
        let (d, m) = (scale.to_f64(), offset.to_f64());
        if kind == Weights::Q8_0 {
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
    let (planes, name) = match kind {
        Weights::Q8_0 => (repack::q8_0(&blocks), "q8_0_"),
        _ => (repack::q4_1(&blocks), "q4_1_"),
    };
    let buffers = vec![
        Buffer::from_bytes(&planes.quants),
        Buffer::from_bytes(&planes.scales),
    ];
    (buffers, name, numbers)
}

fn linear(storage: Storage, out_storage: Storage, shape: Shape, tile: Tile, seeds: &[u32]) {
    product(Weights::Dense, storage, out_storage, shape, tile, seeds);
}

fn product(
    kind: Weights,
    storage: Storage,
    out_storage: Storage,
    shape: Shape,
    tile: Tile,
    seeds: &[u32],
) {
    let Shape { m, n, k, .. } = shape;
    let source_rows = m + 3;
    let x_stride = k.next_multiple_of(8) + 8;
    let x = random(storage, 31, source_rows * x_stride);
    let (weight_buffers, weight_name, weight) = weights(kind, storage, n, k);
    let bias = random(storage, 33, n);
    let residual = random(storage, 34, m * n);
    let row_list: Vec<u32> = (0..m as u32)
        .map(|r| (r * 7 + 2) % source_rows as u32)
        .collect();
    let mut wanted = vec![0.0; m * n];
    // Of the sums of absolute products: what rounding errors are relative to.
    let mut largest = 0.0_f64;
    for row in 0..m {
        let x_row = if shape.rows {
            row_list[row] as usize
        } else {
            row
        };
        for column in 0..n {
            let term = |i: usize| f64::from(x[x_row * x_stride + i]) * weight[column * k + i];
            let mut sum: f64 = (0..k).map(term).sum();
            largest = largest.max((0..k).map(|i| term(i).abs()).sum());
            if shape.bias {
                sum += f64::from(bias[column]);
            }
            if shape.residual {
                sum += f64::from(residual[row * n + column]);
            }
            wanted[row * n + column] = sum;
        }
    }
    let names = format!("{weight_name}{}_{}", storage.suffix(), out_storage.suffix());
    let (kernel, groups, threadgroup_bytes) = match tile {
        Tile::Small { rows, columns } => (
            match kind {
                Weights::Dense => format!("linear_small_{names}_r{rows}_c{columns}"),
                _ => format!("linear_small_{names}_r{rows}"),
            },
            [n.div_ceil(4 * columns), m.div_ceil(rows), 1],
            0,
        ),
        Tile::Matrix {
            m: bm,
            n: bn,
            k: bk,
        } => (
            format!("linear_{names}_{bm}x{bn}x{bk}"),
            [n.div_ceil(bn), m.div_ceil(bm), 1],
            (bm + bn) * (bk + 8) * 2,
        ),
    };
    let x = storage.buffer(&x);
    let others = [
        storage.buffer(&bias),
        storage.buffer(&residual),
        words(&row_list),
    ];
    for &seed in seeds {
        let out = out_storage.poisoned(m * n);
        let mut buffers = vec![&x];
        buffers.extend(weight_buffers.iter().chain(&others));
        buffers.push(&out);
        Dispatch {
            kernel: kernel.clone(),
            buffers: &buffers,
            params: &[
                ("m", u(m)),
                ("n", u(n)),
                ("k", u(k)),
                ("x_stride", u(x_stride)),
                ("residual_stride", u(n)),
                ("out_stride", u(n)),
            ],
            constants: &[
                ("has_bias", shape.bias.into()),
                ("has_residual", shape.residual.into()),
                ("has_rows", shape.rows.into()),
                ("aligned", k.is_multiple_of(8).into()),
            ],
            groups,
            threads: 128,
            threadgroup_bytes,
        }
        .run(seed);
        // Sums in f32, of weights rounded to T where matrices multiply what was quantized; then one rounding.
        let rounds_weights = kind != Weights::Dense && matches!(tile, Tile::Matrix { .. });
        let weight_rounding = if rounds_weights {
            storage.rounding()
        } else {
            0.0
        };
        let absolute = largest * (2f64.powi(-22) + weight_rounding);
        let what = format!("{kernel} {shape:?} seed {seed}");
        assert_close(
            &what,
            &out_storage.read(&out),
            &wanted,
            absolute,
            out_storage.rounding() * 1.1,
        );
    }
}

fn plain(m: usize, n: usize, k: usize) -> Shape {
    Shape {
        m,
        n,
        k,
        bias: false,
        residual: false,
        rows: false,
    }
}

const SMALL: [Tile; 4] = [
    Tile::Small {
        rows: 1,
        columns: 1,
    },
    Tile::Small {
        rows: 1,
        columns: 4,
    },
    Tile::Small {
        rows: 2,
        columns: 2,
    },
    Tile::Small {
        rows: 4,
        columns: 1,
    },
];
const MATRIX: [Tile; 3] = [
    Tile::Matrix {
        m: 64,
        n: 32,
        k: 32,
    },
    Tile::Matrix {
        m: 64,
        n: 64,
        k: 16,
    },
    Tile::Matrix {
        m: 32,
        n: 32,
        k: 32,
    },
];

#[test]
fn every_m_by_every_small_tile() {
    for m in (1..=33).chain([64]) {
        for tile in SMALL {
            linear(
                Storage::F16,
                Storage::F16,
                plain(m, 19, 72),
                tile,
                &[m as u32],
            );
        }
    }
}

#[test]
fn every_m_by_every_matrix_tile() {
    for m in (1..=33).chain([64]) {
        for tile in MATRIX {
            linear(
                Storage::F16,
                Storage::F16,
                plain(m, 37, 72),
                tile,
                &[m as u32],
            );
        }
    }
}

#[test]
fn sizes_off_the_tile_in_every_order() {
    for storage in HALVES {
        for tile in SMALL.iter().chain(&MATRIX) {
            for (m, n, k) in [(5, 33, 40), (66, 70, 75), (3, 1, 1), (130, 131, 64)] {
                linear(storage, storage, plain(m, n, k), *tile, &SEEDS);
                linear(storage, Storage::F32, plain(m, n, k), *tile, &[2]);
            }
        }
    }
}

#[test]
fn epilogues_and_row_lists() {
    for storage in HALVES {
        for tile in SMALL.iter().chain(&MATRIX) {
            for flags in 1..8 {
                let shape = Shape {
                    bias: flags & 1 != 0,
                    residual: flags & 2 != 0,
                    rows: flags & 4 != 0,
                    ..plain(9, 34, 64)
                };
                linear(storage, storage, shape, *tile, &[flags]);
            }
        }
    }
}

const QUANTIZED: [Tile; 5] = [
    Tile::Small {
        rows: 1,
        columns: 1,
    },
    Tile::Small {
        rows: 2,
        columns: 1,
    },
    Tile::Small {
        rows: 4,
        columns: 1,
    },
    MATRIX[0],
    MATRIX[2],
];

#[test]
fn quantized_weights_by_every_tile() {
    for kind in [Weights::Q8_0, Weights::Q4_1] {
        for storage in HALVES {
            for tile in QUANTIZED {
                product(kind, storage, storage, plain(5, 33, 96), tile, &SEEDS);
                product(kind, storage, Storage::F32, plain(66, 70, 288), tile, &[2]);
            }
        }
        for m in (1..=33).chain([64]) {
            for tile in QUANTIZED {
                let shape = Shape {
                    bias: m % 2 == 0,
                    residual: m % 3 == 0,
                    rows: m % 5 == 0,
                    ..plain(m, 19, 64)
                };
                product(kind, Storage::F16, Storage::F16, shape, tile, &[m as u32]);
            }
        }
    }
}

/// Every tile on sizes off it, for the sanitizer.
pub fn one_of_each(seed: u32) {
    for storage in HALVES {
        for tile in SMALL.iter().chain(&MATRIX) {
            let all = Shape {
                bias: true,
                residual: true,
                rows: true,
                ..plain(5, 35, 72)
            };
            linear(storage, storage, all, *tile, &[seed]);
            linear(storage, Storage::F32, plain(66, 33, 37), *tile, &[seed]);
        }
        for tile in QUANTIZED {
            product(
                Weights::Q8_0,
                storage,
                storage,
                plain(5, 35, 96),
                tile,
                &[seed],
            );
            product(
                Weights::Q4_1,
                storage,
                Storage::F32,
                plain(5, 35, 96),
                tile,
                &[seed],
            );
        }
    }
}
