//! Owns the shapes that paged attention is tested with.

use super::decode::{Split, decode};
use super::numbers::HALVES;
use super::prefill::prefill;
use super::{Body, Case};
use crate::select::{DeviceProfile, Element};

#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

const fn heads(heads: usize, kv_heads: usize, head_dim: usize) -> Heads {
    Heads {
        heads,
        kv_heads,
        head_dim,
    }
}

/// 1, 3, 8 and 9 query heads to a KV head, in every kernel's head size and in sizes between.
const SHAPES: [Heads; 5] = [
    heads(2, 2, 64),
    heads(3, 1, 32),
    heads(8, 1, 128),
    heads(6, 2, 48),
    heads(9, 1, 80),
];
/// Around the edges of pages, of steps and of parts.
const CONTEXTS: [usize; 8] = [1, 31, 32, 33, 255, 256, 257, 1000];
pub(super) const SCALE: f32 = 0.7;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for element in HALVES {
        let suffix = element.suffix();
        let mut case = |name: String, body: Body| cases.push(Case { name, body });
        for shape in SHAPES {
            let Heads {
                heads,
                kv_heads,
                head_dim,
            } = shape;
            let shape_name = format!("{suffix}/d{head_dim}_h{heads}_kv{kv_heads}");
            case(
                format!("attention_decode/{shape_name}"),
                Box::new(move |b| decode(b, element, shape, &[1, 33, 70], 0, Split::Chosen)),
            );
            case(
                format!("once/attention_decode_split_{shape_name}"),
                Box::new(move |b| decode(b, element, shape, &[5, 33, 300], 0, Split::Forced)),
            );
            for queries in [32, 64] {
                case(
                    format!("once/attention_prefill_q{queries}_{shape_name}"),
                    Box::new(move |b| {
                        let device = DeviceProfile {
                            prefill_queries: queries,
                            ..b.profile
                        };
                        prefill(b, element, shape, &[(100, 70), (75, 9)], 0, 16, device)
                    }),
                );
            }
            case(
                format!("attention_prefill/{shape_name}"),
                Box::new(move |b| {
                    prefill(b, element, shape, &[(45, 45), (90, 20)], 0, 32, b.profile)
                }),
            );
        }
        case(
            format!("attention_decode/{suffix}/every_edge"),
            Box::new(move |b| decode(b, element, SHAPES[0], &CONTEXTS, 0, Split::Chosen)),
        );
        case(
            format!("attention_decode/{suffix}/every_edge_split"),
            Box::new(move |b| decode(b, element, SHAPES[0], &CONTEXTS, 0, Split::Forced)),
        );
        for (name, split) in [("chosen", Split::Chosen), ("forced", Split::Forced)] {
            case(
                format!("attention_decode/{suffix}/window_{name}"),
                Box::new(move |b| decode(b, element, SHAPES[3], &[1, 39, 40, 41, 300], 40, split)),
            );
        }
        case(
            format!("attention_prefill/{suffix}/window"),
            Box::new(move |b| {
                let batch = [(33, 33), (150, 50), (200, 9)];
                prefill(b, element, SHAPES[3], &batch, 40, 16, b.profile)
            }),
        );
        // The narrowest: a query sees itself.
        case(
            format!("attention_decode/{suffix}/window_of_one"),
            Box::new(move |b| decode(b, element, SHAPES[3], &[1, 2, 40], 1, Split::Chosen)),
        );
        case(
            format!("attention_prefill/{suffix}/window_of_one"),
            Box::new(move |b| {
                prefill(
                    b,
                    element,
                    SHAPES[3],
                    &[(33, 33), (70, 9)],
                    1,
                    16,
                    b.profile,
                )
            }),
        );
        for page in [16, 32] {
            case(
                format!("attention_prefill/{suffix}/whole_page{page}"),
                Box::new(move |b| {
                    let whole = [(1, 1), (31, 31), (32, 32), (33, 33), (65, 65)];
                    prefill(b, element, SHAPES[0], &whole, 0, page, b.profile)
                }),
            );
            case(
                format!("attention_prefill/{suffix}/chunks_page{page}"),
                Box::new(move |b| {
                    let chunks = [(70, 37), (257, 9), (300, 64), (40, 1)];
                    prefill(b, element, SHAPES[0], &chunks, 0, page, b.profile)
                }),
            );
        }
    }
    for queries in [3, 5, 7, 9, 12, 15, 257] {
        cases.push(Case::new(
            format!("attention_decode/f16/batch{queries}"),
            move |bench| {
                let contexts: Vec<usize> = (0..queries).map(|i| 1 + i * 5 % 37).collect();
                decode(bench, Element::F16, SHAPES[1], &contexts, 0, Split::Chosen)
            },
        ));
    }
    for queries in [3, 5, 7, 9, 12, 15] {
        cases.push(Case::new(
            format!("attention_prefill/f16/batch{queries}"),
            move |bench| {
                let length = |i: usize| (10 + i * 3, 1 + i * 7 % 10);
                let batch: Vec<(usize, usize)> = (0..queries).map(length).collect();
                prefill(bench, Element::F16, SHAPES[1], &batch, 0, 16, bench.profile)
            },
        ));
    }
    cases
}

/// Scores are sums of products below 1, so that shares are right to 1e-5; values are below 1. The rest is one rounding
/// of the output, and in prefill one of each share.
pub(super) fn tolerance(element: Element, roundings: f64) -> (f64, f64) {
    let rounding = element.rounding();
    (2e-5 + (roundings - 1.0) * rounding, rounding * 1.1)
}
