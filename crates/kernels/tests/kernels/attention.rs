//! Owns the tests of paged attention, against f64.

use crate::support::cache::Cache;
use crate::support::*;

struct Heads {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// The kernel's head size.
    padded: usize,
}

const SCALE: f32 = 0.7;

/// Scores are sums of products below 1, so that shares are right to 1e-5; values are below 1. The rest is one rounding
/// of the output, and in prefill one of each share.
fn tolerance(storage: Storage, roundings: f64) -> (f64, f64) {
    (
        2e-5 + (roundings - 1.0) * storage.rounding(),
        storage.rounding() * 1.1,
    )
}

/// One query at the end of each context.
fn decode(
    storage: Storage,
    shape: &Heads,
    contexts: &[usize],
    part_tokens: usize,
    window: usize,
    seeds: &[u32],
) {
    let &Heads {
        heads,
        kv_heads,
        head_dim,
        padded,
    } = shape;
    let last: Vec<usize> = contexts.iter().map(|c| c - 1).collect();
    let cache = Cache::new(storage, kv_heads, head_dim, 16, contexts, &last, window);
    let (queries, stride) = (contexts.len(), heads * head_dim);
    // Queries stand in the rows of a mixed batch in reverse, one row apart.
    let rows: Vec<u32> = (0..queries)
        .map(|i| (2 * (queries - 1 - i)) as u32)
        .collect();
    let q = random(storage, 51, 2 * queries * stride);
    let mut wanted = vec![f64::NAN; 2 * queries * stride];
    for i in 0..queries {
        for head in 0..heads {
            let at = rows[i] as usize * stride + head * head_dim;
            let kv_head = head / (heads / kv_heads);
            let out = cache.attend(
                &q[at..at + head_dim],
                i,
                contexts[i] - 1,
                kv_head,
                SCALE,
                window,
            );
            wanted[at..at + head_dim].copy_from_slice(&out);
        }
    }
    let parts = contexts.iter().max().unwrap().div_ceil(part_tokens);
    let block = if padded == 128 { 4 } else { 8 };
    let params = [
        ("page_stride", l(cache.page_stride)),
        ("layer_offset", l(cache.layer_offset)),
        ("heads", u(heads)),
        ("kv_heads", u(kv_heads)),
        ("head_dim", u(head_dim)),
        ("tokens_per_page", u(16)),
        ("q_stride", u(stride)),
        ("out_stride", u(stride)),
        ("part_tokens", u(part_tokens)),
        ("parts", u(parts)),
        ("window", u(window)),
        ("scale", f(SCALE)),
    ];
    let contexts: Vec<u32> = contexts.iter().map(|c| *c as u32).collect();
    for &seed in seeds {
        let out = storage.poisoned(2 * queries * stride);
        let partials = Storage::F32.poisoned(queries * heads * parts * (padded + 2));
        Dispatch {
            kernel: format!("attention_decode_{}_d{padded}", storage.suffix()),
            buffers: &[
                &storage.buffer(&q),
                &cache.pages,
                &words(&rows),
                &words(&contexts),
                &Cache::signed(&cache.tables),
                &words(&cache.blocks),
                &partials,
                &out,
            ],
            params: &params,
            constants: &[("is_split", (parts > 1).into())],
            groups: [
                kv_heads * (heads / kv_heads).div_ceil(block),
                queries,
                parts,
            ],
            threads: 128,
            threadgroup_bytes: 4 * block * (padded + 2) * 4,
        }
        .run(seed);
        if parts > 1 {
            Dispatch {
                kernel: format!("attention_reduce_{}_d{padded}", storage.suffix()),
                buffers: &[&partials, &words(&rows), &out],
                params: &params,
                constants: &[("is_split", 1)],
                groups: [heads, queries, 1],
                threads: 64,
                threadgroup_bytes: 0,
            }
            .run(seed);
        }
        let got = storage.read(&out);
        let (absolute, relative) = tolerance(storage, 1.0);
        for &row in &rows {
            let at = row as usize * stride;
            let what = format!("decode {storage:?} row {row} seed {seed}");
            assert_close(
                &what,
                &got[at..at + stride],
                &wanted[at..at + stride],
                absolute,
                relative,
            );
            let next = &got[at + stride..at + 2 * stride];
            assert!(
                next.iter().all(|v| v.is_nan()),
                "{what}: the row after is untouched"
            );
        }
    }
}

const GQA: [Heads; 5] = [
    Heads {
        heads: 2,
        kv_heads: 2,
        head_dim: 64,
        padded: 64,
    },
    Heads {
        heads: 3,
        kv_heads: 1,
        head_dim: 32,
        padded: 32,
    },
    Heads {
        heads: 8,
        kv_heads: 1,
        head_dim: 128,
        padded: 128,
    },
    Heads {
        heads: 6,
        kv_heads: 2,
        head_dim: 48,
        padded: 64,
    },
    Heads {
        heads: 2,
        kv_heads: 1,
        head_dim: 80,
        padded: 128,
    },
];

#[test]
fn decode_at_every_edge_of_pages_and_parts() {
    let contexts = [1, 31, 32, 33, 255, 256, 257, 1000];
    decode(Storage::F16, &GQA[0], &contexts, 1024, 0, &SEEDS);
    decode(Storage::F16, &GQA[0], &contexts, 256, 0, &SEEDS);
}

#[test]
fn decode_of_every_head_shape() {
    for storage in HALVES {
        for shape in &GQA {
            decode(storage, shape, &[1, 33, 70], 1024, 0, &[0, 3]);
            decode(storage, shape, &[5, 33, 70], 32, 0, &[0, 3]);
        }
    }
}

#[test]
fn decode_of_batches_of_every_size() {
    for queries in [3, 5, 7, 9, 12, 15, 257] {
        let contexts: Vec<usize> = (0..queries).map(|i| 1 + i * 5 % 37).collect();
        decode(Storage::F16, &GQA[1], &contexts, 1024, 0, &[1]);
    }
}

#[test]
fn decode_in_a_window_whose_earlier_pages_are_gone() {
    for part_tokens in [32, 1024] {
        decode(
            Storage::F16,
            &GQA[3],
            &[1, 39, 40, 41, 100],
            part_tokens,
            40,
            &SEEDS,
        );
    }
}

/// The last `lengths[i]` tokens of each context are queries.
fn prefill(
    storage: Storage,
    shape: &Heads,
    batch: &[(usize, usize)],
    window: usize,
    page: usize,
    seeds: &[u32],
) {
    let &Heads {
        heads,
        kv_heads,
        head_dim,
        padded,
    } = shape;
    let contexts: Vec<usize> = batch.iter().map(|(context, _)| *context).collect();
    let first_queries: Vec<usize> = batch
        .iter()
        .map(|(context, length)| context - length)
        .collect();
    let cache = Cache::new(
        storage,
        kv_heads,
        head_dim,
        page,
        &contexts,
        &first_queries,
        window,
    );
    let stride = heads * head_dim;
    let mut query_start = vec![0_u32];
    let mut tiles = Vec::new();
    for (sequence, (_, length)) in batch.iter().enumerate() {
        query_start.push(query_start[sequence] + *length as u32);
        tiles.extend(
            (0..*length as u32)
                .step_by(32)
                .flat_map(|first| [sequence as u32, first]),
        );
    }
    let tokens = *query_start.last().unwrap() as usize;
    let q = random(storage, 61, tokens * stride);
    let mut wanted = vec![f64::NAN; tokens * stride];
    for (sequence, &(_, length)) in batch.iter().enumerate() {
        for query in 0..length {
            for head in 0..heads {
                let at = (query_start[sequence] as usize + query) * stride + head * head_dim;
                let kv_head = head / (heads / kv_heads);
                let position = first_queries[sequence] + query;
                let out = cache.attend(
                    &q[at..at + head_dim],
                    sequence,
                    position,
                    kv_head,
                    SCALE,
                    window,
                );
                wanted[at..at + head_dim].copy_from_slice(&out);
            }
        }
    }
    let contexts: Vec<u32> = contexts.iter().map(|c| *c as u32).collect();
    let keys = if padded == 128 { 16 } else { 32 };
    for &seed in seeds {
        let out = storage.poisoned(tokens * stride);
        Dispatch {
            kernel: format!("attention_prefill_{}_d{padded}", storage.suffix()),
            buffers: &[
                &storage.buffer(&q),
                &cache.pages,
                &words(&tiles),
                &words(&query_start),
                &words(&contexts),
                &Cache::signed(&cache.tables),
                &words(&cache.blocks),
                &out,
            ],
            params: &[
                ("page_stride", l(cache.page_stride)),
                ("layer_offset", l(cache.layer_offset)),
                ("heads", u(heads)),
                ("kv_heads", u(kv_heads)),
                ("head_dim", u(head_dim)),
                ("tokens_per_page", u(page)),
                ("q_stride", u(stride)),
                ("out_stride", u(stride)),
                ("window", u(window)),
                ("scale", f(SCALE)),
            ],
            constants: &[("aligned", 1)],
            groups: [heads, tiles.len() / 2, 1],
            threads: 128,
            threadgroup_bytes: (32 + keys) * (padded + 8) * 2,
        }
        .run(seed);
        let (absolute, relative) = tolerance(storage, 2.0);
        let what = format!("prefill {storage:?} {batch:?} seed {seed}");
        assert_close(&what, &storage.read(&out), &wanted, absolute, relative);
    }
}

#[test]
fn prefill_of_whole_prompts_chunks_and_mixed_batches() {
    let whole = [(1, 1), (31, 31), (32, 32), (33, 33)];
    let chunks = [(70, 37), (257, 9), (300, 64), (40, 1)];
    for page in [16, 32] {
        prefill(Storage::F16, &GQA[0], &whole, 0, page, &SEEDS);
        prefill(Storage::F16, &GQA[0], &chunks, 0, page, &SEEDS);
    }
}

#[test]
fn prefill_of_every_head_shape() {
    for storage in HALVES {
        for shape in &GQA {
            prefill(storage, shape, &[(45, 45), (90, 20)], 0, 32, &[0, 3]);
        }
    }
}

#[test]
fn prefill_in_a_window_whose_earlier_pages_are_gone() {
    prefill(
        Storage::F16,
        &GQA[3],
        &[(33, 33), (150, 50), (200, 9)],
        40,
        16,
        &SEEDS,
    );
}

/// Every kernel with contexts, chunks and windows off the tile, for the sanitizer.
pub fn one_of_each(seed: u32) {
    for storage in HALVES {
        for shape in &GQA {
            decode(storage, shape, &[1, 33, 70], 1024, 0, &[seed]);
            decode(storage, shape, &[5, 40, 70], 32, 40, &[seed]);
            prefill(storage, shape, &[(45, 45), (90, 20)], 40, 16, &[seed]);
        }
    }
}
