//! Owns the tests of kernels that work row by row, against f64.

use crate::support::*;
use mettle_kernels::emulator::Buffer;

#[test]
fn rms_norm_with_and_without_residual() {
    for storage in HALVES {
        for width in [1, 33, 576, 1000, 4100] {
            for (has_add, has_weight) in [(false, true), (true, true), (true, false)] {
                rms_norm(storage, width, has_add, has_weight, &SEEDS);
            }
        }
    }
}

fn rms_norm(storage: Storage, width: usize, has_add: bool, has_weight: bool, seeds: &[u32]) {
    let (rows, stride, eps) = (3, width + 5, 1e-5_f32);
    let x = random(storage, 1, rows * stride);
    let add = random(storage, 2, rows * width);
    let weight = random(storage, 3, width);
    let mut wanted = vec![f64::NAN; rows * width];
    let mut sums = x.clone();
    for row in 0..rows {
        for c in 0..width {
            if has_add {
                sums[row * stride + c] = storage.round(x[row * stride + c] + add[row * width + c]);
            }
        }
        let values = &sums[row * stride..row * stride + width];
        let square: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        let scale = 1.0 / (square / width as f64 + f64::from(eps)).sqrt();
        for c in 0..width {
            let factor = if has_weight {
                f64::from(weight[c]) + 0.5
            } else {
                1.0
            };
            wanted[row * width + c] = f64::from(values[c]) * scale * factor;
        }
    }
    for &seed in seeds {
        let x = storage.buffer(&x);
        let out = storage.poisoned(rows * width);
        Dispatch {
            kernel: format!("rms_norm_{}", storage.suffix()),
            buffers: &[&x, &storage.buffer(&add), &storage.buffer(&weight), &out],
            params: &[
                ("width", u(width)),
                ("x_stride", u(stride)),
                ("add_stride", u(width)),
                ("out_stride", u(width)),
                ("eps", f(eps)),
                ("weight_offset", f(0.5)),
            ],
            constants: &[
                ("has_add", has_add.into()),
                ("has_weight", has_weight.into()),
            ],
            groups: [rows, 1, 1],
            threads: 256,
            threadgroup_bytes: 8 * 4,
        }
        .run(seed);
        let what = format!("rms_norm {storage:?} width {width} seed {seed}");
        // One rounding of the result, and f32 sums below it.
        assert_close(
            &what,
            &storage.read(&out),
            &wanted,
            1e-6,
            storage.rounding() * 1.1,
        );
        assert_eq!(storage.read(&x), sums, "{what}: x holds the sum");
    }
}

#[test]
fn silu_mul_reads_gate_and_up_from_one_buffer() {
    silu_mul(&SEEDS);
}

fn silu_mul(seeds: &[u32]) {
    let (rows, width) = (5, 300);
    for storage in HALVES {
        let gate_up: Vec<f32> = random(storage, 7, rows * 2 * width)
            .iter()
            .map(|v| storage.round(v * 20.0))
            .collect();
        let wanted: Vec<f64> = (0..rows * width)
            .map(|i| {
                let at = i / width * 2 * width + i % width;
                let (gate, up) = (f64::from(gate_up[at]), f64::from(gate_up[at + width]));
                gate / (1.0 + (-gate).exp()) * up
            })
            .collect();
        let both = storage.buffer(&gate_up);
        let up = storage.buffer(&gate_up[width..]);
        for &seed in seeds {
            let out = storage.poisoned(rows * width);
            Dispatch {
                kernel: format!("silu_mul_{}", storage.suffix()),
                buffers: &[&both, &up, &out],
                params: &[
                    ("width", u(width)),
                    ("gate_stride", u(2 * width)),
                    ("up_stride", u(2 * width)),
                    ("out_stride", u(width)),
                ],
                constants: &[],
                groups: [width.div_ceil(256), rows, 1],
                threads: 256,
                threadgroup_bytes: 0,
            }
            .run(seed);
            let rounding = storage.rounding() * 1.1;
            assert_close("silu_mul", &storage.read(&out), &wanted, 1e-6, rounding);
        }
    }
}

#[test]
fn embedding_and_gather_copy_the_named_rows() {
    for seed in SEEDS {
        embed_and_gather(seed);
    }
}

fn embed_and_gather(seed: u32) {
    let (vocabulary, width) = (50, 70);
    let ids = [3_u32, 49, 0, 3, 17];
    for storage in HALVES {
        let table = random(storage, 9, vocabulary * width);
        let wanted: Vec<f64> = ids
            .iter()
            .flat_map(|&id| &table[id as usize * width..][..width])
            .map(|&v| f64::from(v))
            .collect();
        let out = storage.poisoned(ids.len() * width);
        let dispatch = Dispatch {
            kernel: format!("embed_{}", storage.suffix()),
            buffers: &[&words(&ids), &storage.buffer(&table), &out],
            params: &[
                ("width", u(width)),
                ("vocabulary", u(vocabulary)),
                ("out_stride", u(width)),
                ("scale", f(2.0)),
            ],
            constants: &[],
            groups: [1, ids.len(), 1],
            threads: 256,
            threadgroup_bytes: 0,
        };
        dispatch.run(seed);
        let doubled: Vec<f64> = wanted.iter().map(|v| v * 2.0).collect();
        assert_close("embed", &storage.read(&out), &doubled, 0.0, 0.0);
        embed_q8_0(storage, seed, &ids);
        let out = storage.poisoned(ids.len() * width);
        Dispatch {
            kernel: format!("gather_{}", storage.suffix()),
            buffers: &[&storage.buffer(&table), &words(&ids), &out],
            params: &[
                ("width", u(width)),
                ("x_stride", u(width)),
                ("out_stride", u(width)),
            ],
            ..dispatch
        }
        .run(seed);
        assert_close("gather", &storage.read(&out), &wanted, 0.0, 0.0);
    }
}

fn embed_q8_0(storage: Storage, seed: u32, ids: &[u32]) {
    let (vocabulary, width) = (50, 64);
    let quants: Vec<i8> = (0..vocabulary * width)
        .map(|i| (i * 37 % 255 - 127) as i8)
        .collect();
    let scales: Vec<f32> = (0..vocabulary * width / 32)
        .map(|i| 1.0 / (1 + i) as f32)
        .collect();
    let scale_buffer = Storage::F16.buffer(&scales);
    let wanted: Vec<f64> = ids
        .iter()
        .flat_map(|&id| (0..width).map(move |c| id as usize * width as usize + c as usize))
        .map(|at| f64::from(quants[at]) * f64::from(Storage::F16.round(scales[at / 32])))
        .collect();
    let bytes: Vec<u8> = quants.iter().map(|&q| q as u8).collect();
    let out = storage.poisoned(ids.len() * width as usize);
    Dispatch {
        kernel: format!("embed_q8_0_{}", storage.suffix()),
        buffers: &[
            &words(ids),
            &Buffer::from_bytes(&bytes),
            &scale_buffer,
            &out,
        ],
        params: &[
            ("width", u(width as usize)),
            ("vocabulary", u(vocabulary as usize)),
            ("out_stride", u(width as usize)),
            ("scale", f(1.0)),
        ],
        constants: &[],
        groups: [1, ids.len(), 1],
        threads: 256,
        threadgroup_bytes: 0,
    }
    .run(seed);
    let rounding = storage.rounding() * 1.1;
    assert_close("embed_q8_0", &storage.read(&out), &wanted, 1e-7, rounding);
}

#[test]
fn head_norm_works_in_place_on_columns_of_a_wider_row() {
    head_norm(&SEEDS);
}

fn head_norm(seeds: &[u32]) {
    let (tokens, heads, head_dim, stride) = (4, 3, 80, 300);
    for storage in HALVES {
        let x = random(storage, 11, tokens * stride);
        let weight = random(storage, 12, head_dim);
        let mut wanted: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
        for head in wanted
            .chunks_mut(stride)
            .flat_map(|row| row[..heads * head_dim].chunks_mut(head_dim))
        {
            let square: f64 = head.iter().map(|v| v * v).sum();
            let scale = 1.0 / (square / head_dim as f64 + 1e-6_f32 as f64).sqrt();
            (head.iter_mut().zip(&weight)).for_each(|(v, &w)| *v *= scale * f64::from(w));
        }
        for &seed in seeds {
            let buffer = storage.buffer(&x);
            Dispatch {
                kernel: format!("head_norm_{}", storage.suffix()),
                buffers: &[&buffer, &storage.buffer(&weight)],
                params: &[
                    ("head_dim", u(head_dim)),
                    ("x_stride", u(stride)),
                    ("eps", f(1e-6)),
                    ("weight_offset", f(0.0)),
                ],
                constants: &[],
                groups: [heads, tokens, 1],
                threads: 32,
                threadgroup_bytes: 0,
            }
            .run(seed);
            let rounding = storage.rounding() * 1.1;
            assert_close("head_norm", &storage.read(&buffer), &wanted, 1e-6, rounding);
        }
    }
}

#[test]
fn rope_turns_pairs_and_fills_the_slots() {
    for storage in HALVES {
        for (interleaved, rotate_from, dims) in [(false, 0, 64), (true, 0, 64), (false, 8, 24)] {
            rope(storage, interleaved, rotate_from, dims, &SEEDS);
        }
    }
}

fn rope(storage: Storage, interleaved: bool, rotate_from: usize, dims: usize, seeds: &[u32]) {
    let (heads, kv_heads, head_dim, tokens_per_page, layers, layer) = (3, 2, 64, 16, 2, 1);
    let positions = [0_usize, 5, 100_000, 31];
    let slots: [i32; 4] = [35, 0, 79, -1];
    let (tokens, pairs) = (positions.len(), dims / 2);
    let (q_stride, kv_stride) = (heads * head_dim, kv_heads * head_dim);
    let turns: Vec<f64> = (positions.iter())
        .flat_map(|&position| {
            (0..pairs)
                .map(move |i| position as f64 * 10_000_f64.powf(-2.0 * i as f64 / dims as f64))
        })
        .flat_map(|angle| [angle.cos(), angle.sin()])
        .collect();
    let turn_floats: Vec<f32> = turns.iter().map(|&v| v as f32).collect();
    let q = random(storage, 21, tokens * q_stride);
    let k = random(storage, 22, tokens * kv_stride);
    let v = random(storage, 23, tokens * kv_stride);
    let turned = |x: &[f32], stride: usize| {
        let mut out: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
        for (at, head) in out.chunks_mut(head_dim).enumerate() {
            let token = at * head_dim / stride;
            for i in 0..pairs {
                let first = rotate_from + if interleaved { 2 * i } else { i };
                let second = first + if interleaved { 1 } else { pairs };
                let (cos, sin) = (
                    turns[2 * (token * pairs + i)],
                    turns[2 * (token * pairs + i) + 1],
                );
                let (a, b) = (head[first], head[second]);
                head[first] = a * cos - b * sin;
                head[second] = b * cos + a * sin;
            }
        }
        out
    };
    let (wanted_q, wanted_k) = (turned(&q, q_stride), turned(&k, kv_stride));
    let plane = kv_heads * tokens_per_page * head_dim;
    let page_stride = layers * 2 * plane;
    let pages = 5;
    for &seed in seeds {
        let (q_buffer, k_buffer) = (storage.buffer(&q), storage.buffer(&k));
        let cache = storage.poisoned(pages * page_stride);
        Dispatch {
            kernel: format!("rope_kv_write_{}", storage.suffix()),
            buffers: &[
                &q_buffer,
                &k_buffer,
                &storage.buffer(&v),
                &Storage::F32.buffer(&turn_floats),
                &words(&slots.map(|s| s as u32)),
                &cache,
            ],
            params: &[
                ("page_stride", l(page_stride)),
                ("layer_offset", l(layer * 2 * plane)),
                ("heads", u(heads)),
                ("kv_heads", u(kv_heads)),
                ("head_dim", u(head_dim)),
                ("rotate_from", u(rotate_from)),
                ("pairs", u(pairs)),
                ("q_stride", u(q_stride)),
                ("k_stride", u(kv_stride)),
                ("v_stride", u(kv_stride)),
                ("tokens_per_page", u(tokens_per_page)),
            ],
            constants: &[("interleaved", interleaved.into())],
            groups: [heads + kv_heads, tokens, 1],
            threads: 64,
            threadgroup_bytes: 0,
        }
        .run(seed);
        let rounding = storage.rounding() * 1.1;
        assert_close("q", &storage.read(&q_buffer), &wanted_q, 1e-6, rounding);
        let got_k = storage.read(&k_buffer);
        assert_close("k", &got_k, &wanted_k, 1e-6, rounding);
        let cache = storage.read(&cache);
        let mut written = 0;
        for (token, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
            let (page, place) = (
                *slot as usize / tokens_per_page,
                *slot as usize % tokens_per_page,
            );
            for head in 0..kv_heads {
                let key = page * page_stride
                    + layer * 2 * plane
                    + (head * tokens_per_page + place) * head_dim;
                let at = token * kv_stride + head * head_dim;
                assert_eq!(cache[key..][..head_dim], got_k[at..][..head_dim]);
                assert_eq!(cache[key + plane..][..head_dim], v[at..][..head_dim]);
                written += 2 * head_dim;
            }
        }
        let touched = cache.iter().filter(|v| !v.is_nan()).count();
        assert_eq!(touched, written, "nothing else is written");
    }
}

/// Every kernel of this file once, for the sanitizer.
pub fn one_of_each(seed: u32) {
    for storage in HALVES {
        rms_norm(storage, 33, true, true, &[seed]);
        rms_norm(storage, 4100, false, true, &[seed]);
        rope(storage, false, 8, 24, &[seed]);
    }
    silu_mul(&[seed]);
    embed_and_gather(seed);
    head_norm(&[seed]);
}
