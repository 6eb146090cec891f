//! Attention against f64, at contexts that cross every block, page and partition; alone and in tiles, bit for bit.

use super::*;
use crate::memory::AlignedBytes;
use mettle_plan::{
    KvElement, KvGroup, KvLayer, PageLayout, Plane, RelativeBias, Retention, WeightId,
};

const HEADS: usize = 3;

fn value(seed: usize, i: usize) -> f32 {
    ((seed * 7919 + i * 104_729) % 1009) as f32 / 300.0 - 1.7
}

fn key_of<const DIM: usize>(position: usize) -> Vec<f32> {
    (0..DIM).map(|d| value(position + 1, d)).collect()
}

fn value_of<const DIM: usize>(position: usize) -> Vec<f32> {
    (0..DIM).map(|d| value(position + 77, d + 3)).collect()
}

fn query_of<const DIM: usize>(position: usize) -> Vec<f32> {
    (0..HEADS * DIM)
        .map(|d| value(position + 31, d + 11) / 2.0)
        .collect()
}

/// What a model may want besides plain attention.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    window: Option<usize>,
    softcap: Option<f32>,
    sinks: Option<[f32; HEADS]>,
    bias: bool,
    /// Every query sees so many tokens, wherever it stands.
    whole: Option<usize>,
}

const PLAIN: Kind = Kind {
    window: None,
    softcap: None,
    sinks: None,
    bias: false,
    whole: None,
};

impl Kind {
    /// The first position that the query at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window.unwrap_or(usize::MAX))
    }

    /// One past the last one.
    fn end_seen(&self, position: usize) -> usize {
        self.whole.unwrap_or(position + 1)
    }

    fn table(&self) -> Option<BiasTable> {
        let bias = RelativeBias {
            weight: WeightId(0),
            buckets: 32,
            max_distance: 128,
            bidirectional: self.whole.is_some(),
        };
        let weight: Vec<f32> = (0..32 * HEADS).map(|i| value(5, i)).collect();
        self.bias.then(|| BiasTable::new(&bias, &weight))
    }
}

/// A pool whose unwritten places are NaN, with the tokens of `positions` in scattered pages.
fn pool<const DIM: usize>(
    positions: Range<usize>,
    element: KvElement,
) -> (KvPool, Vec<BlockId>, HeadOf) {
    let plane = Plane {
        heads: 2,
        width: DIM,
        element,
    };
    let groups = [KvGroup {
        name: "test".into(),
        layers: 2,
        planes: vec![plane, plane],
        retention: Retention::Full,
    }];
    let layout = PageLayout::new(&groups, 32);
    let pages = positions.end.div_ceil(32);
    let pool = KvPool::new(&groups, &layout, 2 * pages + 1).unwrap();
    let blocks: Vec<BlockId> = (0..pages)
        .map(|p| BlockId((2 * pages - 2 * p) as u32))
        .collect();
    let kv = KvLayer { group: 0, layer: 1 };
    let of = HeadOf { kv, head: 1 };
    for position in 0..pages * 32 {
        let (page, token) = (blocks[position / 32], position % 32);
        let inside = positions.contains(&position);
        let or_nan = |v: Vec<f32>| if inside { v } else { vec![f32::NAN; DIM] };
        // SAFETY: one thread, pages exist.
        unsafe {
            pool.write(
                of,
                page,
                token,
                &or_nan(key_of::<DIM>(position)),
                &or_nan(value_of::<DIM>(position)),
            )
        };
    }
    (pool, blocks, of)
}

/// The outputs of queries at `first..first + count`, in tiles of `tile` tokens; by partitions, as threads that share a
/// context compute them, where `tile` is 0.
fn run<const DIM: usize>(
    kind: Kind,
    isa: Isa,
    element: KvElement,
    first: usize,
    count: usize,
    tile: usize,
) -> Vec<f32> {
    let first_seen = kind.first_seen(first);
    let end = kind.end_seen(first + count - 1);
    let (pool, blocks, of) = pool::<DIM>(first_seen..end, element);
    let table = kind.table();
    // Pages that no query needs have been given back.
    let first_page = first_seen / 32;
    let blocks = &blocks[first_page..];
    let width = HEADS * DIM;
    let q = AlignedBytes::zeroed("test", count * width * 4).unwrap();
    let out = AlignedBytes::zeroed("test", count * width * 4).unwrap();
    // SAFETY: the blocks hold `count` rows of `width`.
    let (q, out) = unsafe {
        (
            (Rows::new(q.base().cast(), width, width), q),
            (Rows::new(out.base().cast(), width, width), out),
        )
    };
    let attention = Attention {
        pool: &pool,
        of,
        q: q.0,
        out: out.0,
        head_dim: DIM,
        scale: 0.2,
        causal: kind.whole.is_none(),
        window: kind.window,
        softcap: kind.softcap,
        sinks: kind.sinks.as_ref().map(|s| &s[..]),
        bias: table.as_ref().map(|table| table.rows(0..HEADS)),
        rotation: None,
    };
    let mut scratch = Scratch::new(DIM, HEADS);
    // SAFETY: one thread, and every row exists.
    unsafe {
        for i in 0..count {
            q.0.row_mut(i).copy_from_slice(&query_of::<DIM>(first + i));
            out.0.row_mut(i).fill(f32::NAN);
        }
        let stride = HEADS * part_width(DIM);
        let mut parts = vec![f32::NAN; end.div_ceil(PARTITION) * stride];
        for start in (0..count).step_by(tile.max(1)) {
            let query_tile = QueryTile {
                row: start,
                position: first + start,
                tokens: tile.max(1).min(count - start),
                context: kind.end_seen(first + start + tile.max(1).min(count - start) - 1),
                blocks,
                first_page,
            };
            if tile > 0 {
                run_both_ways(&attention, isa, query_tile, &mut scratch);
                continue;
            }
            // Last to first: they do not depend on each other.
            let partitions = attention.partitions(query_tile);
            for partition in partitions.clone().rev() {
                let part = parts
                    .as_mut_ptr()
                    .add((partition - partitions.start) * stride);
                attention.run_partition(isa, query_tile, partition, &mut scratch, part);
            }
            attention.finish(isa, query_tile, &mut scratch, parts.as_ptr(), stride);
        }
        (0..count).flat_map(|i| out.0.row(i).to_vec()).collect()
    }
}

fn truth<const DIM: usize>(kind: Kind, position: usize, head: usize) -> Vec<f64> {
    let seen = kind.first_seen(position)..kind.end_seen(position);
    let table = kind.table();
    let query = &query_of::<DIM>(position)[head * DIM..(head + 1) * DIM];
    let scores: Vec<f64> = seen
        .clone()
        .map(|p| {
            let key = key_of::<DIM>(p);
            let products = query.iter().zip(&key).map(|(a, b)| *a as f64 * *b as f64);
            let rows = table.as_ref().map(|table| table.rows(head..head + 1));
            let bias = rows.map_or(0.0, |rows| rows.of_block(0, position, p)[0] as f64);
            let score = 0.2 * products.sum::<f64>() + bias;
            match kind.softcap {
                Some(cap) => cap as f64 * (score / cap as f64).tanh(),
                None => score,
            }
        })
        .collect();
    let largest = scores.iter().cloned().fold(f64::MIN, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let sink = kind.sinks.map_or(0.0, |s| (s[head] as f64 - largest).exp());
    let sum: f64 = weights.iter().sum::<f64>() + sink;
    (0..DIM)
        .map(|d| {
            weights
                .iter()
                .zip(seen.clone())
                .map(|(w, p)| w * value_of::<DIM>(p)[d] as f64 / sum)
                .sum()
        })
        .collect()
}

fn check_against_f64<const DIM: usize>(kind: Kind) {
    for context in [1, 2, 31, 32, 33, 63, 65, 255, 256, 257, 511, 513, 1000] {
        let found = run::<DIM>(kind, Isa::detect(), KvElement::F32, context - 1, 1, 1);
        for head in 0..HEADS {
            for (d, truth) in truth::<DIM>(kind, context - 1, head).iter().enumerate() {
                let found = found[head * DIM + d] as f64;
                // A thousand f32 roundings of values near 1.
                assert!(
                    (found - truth).abs() < 2e-5,
                    "{kind:?} width {DIM} context {context}: {found} {truth}"
                );
            }
        }
    }
}

#[test]
fn contexts_across_every_boundary_match_f64() {
    check_against_f64::<48>(PLAIN);
    check_against_f64::<64>(PLAIN);
}

#[test]
fn heads_of_any_width_match_f64() {
    check_against_f64::<4>(PLAIN);
    check_against_f64::<12>(PLAIN);
    check_against_f64::<37>(PLAIN);
    check_against_f64::<128>(PLAIN);
}

/// Windows of a token, of less than a block, of whole blocks, across partitions, and longer than any context here;
/// a softcap that bends; sinks that weigh nothing, much and nearly everything; a bias by distance; queries that see all of
/// a context that is not theirs.
fn kinds() -> Vec<Kind> {
    let windows = [1, 2, 31, 32, 33, 64, 100, 256, 300, 2000];
    let windowed = windows.map(|window| Kind {
        window: Some(window),
        ..PLAIN
    });
    let others = [
        Kind {
            softcap: Some(1.5),
            ..PLAIN
        },
        Kind {
            sinks: Some([-90.0, 1.0, 30.0]),
            ..PLAIN
        },
        Kind {
            window: Some(40),
            softcap: Some(2.0),
            sinks: Some([0.5, 3.0, -1.0]),
            ..PLAIN
        },
        Kind {
            bias: true,
            ..PLAIN
        },
    ];
    let whole = [1, 31, 32, 300].map(|tokens| Kind {
        whole: Some(tokens),
        bias: tokens > 31,
        ..PLAIN
    });
    windowed.into_iter().chain(others).chain(whole).collect()
}

#[test]
fn windows_softcaps_sinks_and_biases_match_f64() {
    for kind in kinds() {
        check_against_f64::<16>(kind);
    }
}

#[test]
fn a_window_reads_no_block_before_it() {
    // Those places are NaN, and their pages are not in the table: reading one would panic.
    let kind = Kind {
        window: Some(40),
        ..PLAIN
    };
    let found = run::<16>(kind, Isa::detect(), KvElement::F16, 700, 33, TILE);
    assert!(found.iter().all(|v| v.is_finite()));
    let found = run::<64>(kind, Isa::detect(), KvElement::F16, 700, 33, TILE);
    assert!(found.iter().all(|v| v.is_finite()));
}

fn check_bits<const DIM: usize>(kind: Kind) {
    for element in [KvElement::F16, KvElement::F32] {
        for (first, count) in [(0, 40), (240, 35), (500, 20)] {
            let reference = run::<DIM>(kind, Isa::Scalar, element, first, count, 1);
            assert!(reference.iter().all(|v| v.is_finite()));
            for isa in Isa::available() {
                for tile in [1, 7, TILE] {
                    assert_eq!(
                        run::<DIM>(kind, isa, element, first, count, tile),
                        reference,
                        "{kind:?} width {DIM} {isa} {element:?} {first}+{count} in {tile}s"
                    );
                }
                assert_eq!(
                    run::<DIM>(kind, isa, element, first, count, 0),
                    reference,
                    "{kind:?} width {DIM} {isa} {element:?} {first}+{count} by partitions"
                );
            }
        }
    }
}

#[test]
fn tiles_partitions_and_instruction_sets_give_the_same_bits() {
    check_bits::<48>(PLAIN);
    check_bits::<64>(PLAIN);
    check_bits::<9>(PLAIN);
}

#[test]
fn windows_softcaps_sinks_and_biases_give_the_same_bits_too() {
    for kind in kinds() {
        check_bits::<17>(kind);
        // Wide registers take rows of such heads twelve by twelve.
        check_bits::<32>(kind);
    }
    check_bits::<96>(Kind {
        window: Some(100),
        softcap: Some(2.0),
        sinks: Some([0.5, 3.0, -1.0]),
        ..PLAIN
    });
}

/// Of the first partition the first query of a tile sees one token, and the last one's window begins a block behind its end.
#[test]
fn windows_leave_a_partition_within_a_tile() {
    let kind = Kind {
        window: Some(6),
        ..PLAIN
    };
    let wanted = run::<64>(kind, Isa::Scalar, KvElement::F16, 260, TILE, 1);
    for isa in Isa::available() {
        let found = run::<64>(kind, isa, KvElement::F16, 260, TILE, TILE);
        assert_eq!(found, wanted, "{isa}");
    }
}

/// Rows are taken in threes, twos and ones, or twelve by twelve, by how many there are.
#[test]
fn a_head_does_not_know_how_many_share_its_keys() {
    const DIM: usize = 64;
    for (context, tokens) in [(75, 1), (300, 5)] {
        for element in [KvElement::F16, KvElement::F32] {
            let (pool, blocks, of) = pool::<DIM>(0..context, element);
            let attend = |isa, heads: Range<usize>| {
                let tile = QueryTile {
                    row: 0,
                    position: context - tokens,
                    tokens,
                    context,
                    blocks: &blocks,
                    first_page: 0,
                };
                attend_with::<DIM>(isa, &pool, of, tile, heads)
            };
            let alone: Vec<Vec<f32>> = (0..16)
                .map(|head| attend(Isa::Scalar, head..head + 1).concat())
                .collect();
            assert!(alone.iter().flatten().all(|v| v.is_finite()));
            for isa in Isa::available() {
                for heads in 1..=16 {
                    for (token, found) in attend(isa, 0..heads).iter().enumerate() {
                        for (head, found) in found.chunks_exact(DIM).enumerate() {
                            assert_eq!(
                                found,
                                &alone[head][token * DIM..(token + 1) * DIM],
                                "{isa} {element:?} token {token}, head {head} of {heads}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Where no key that is seen of a partition is a number, nothing of it is seen: of the last key alone, and of all of the first
/// partition's.
#[test]
fn partitions_of_keys_that_are_not_numbers_are_not_seen() {
    const DIM: usize = 64;
    for (context, not_numbers) in [(257, 256..257), (300, 0..PARTITION)] {
        let (pool, blocks, of) = pool::<DIM>(0..context, KvElement::F16);
        for position in not_numbers {
            let (page, token) = (blocks[position / 32], position % 32);
            // SAFETY: one thread, and the page exists.
            unsafe { pool.write(of, page, token, &[f32::NAN; DIM], &[1.0; DIM]) };
        }
        let attend = |isa, position, tokens| {
            let tile = QueryTile {
                row: 0,
                position,
                tokens,
                context: position + tokens,
                blocks: &blocks,
                first_page: 0,
            };
            attend_with::<DIM>(isa, &pool, of, tile, 0..HEADS)
        };
        for isa in Isa::available() {
            for tokens in [1, 8] {
                let found = attend(isa, context - tokens, tokens);
                let wanted = attend(Isa::Scalar, context - tokens, tokens);
                assert_eq!(found, wanted, "{isa}, {tokens} tokens of {context}");
                let values = found.iter().flatten();
                assert!(values.into_iter().all(|v| v.is_finite()), "{isa}");
            }
        }
    }
}

/// Runs the way that this processor prefers, and sees to it that the other gives the same bits.
///
/// # Safety
/// As for `Attention::run`.
unsafe fn run_both_ways(
    attention: &Attention<'_>,
    isa: Isa,
    tile: QueryTile<'_>,
    scratch: &mut Scratch,
) {
    // SAFETY: the caller's promise.
    let run = |scratch: &mut Scratch| unsafe {
        attention.run(isa, tile, scratch);
        let bits = |token| {
            attention
                .out
                .row(tile.row + token)
                .iter()
                .map(|v| v.to_bits())
        };
        (0..tile.tokens).flat_map(bits).collect::<Vec<u32>>()
    };
    let _preferred = run(scratch);
    #[cfg(target_arch = "x86_64")]
    {
        scratch.multiplies_halves ^= true;
        assert_eq!(
            run(scratch),
            _preferred,
            "{isa}, halves widened before or not"
        );
        scratch.multiplies_halves ^= true;
    }
}

/// The outputs of a tile's tokens, of these query heads that share a KV head.
fn attend_with<const DIM: usize>(
    isa: Isa,
    pool: &KvPool,
    of: HeadOf,
    tile: QueryTile<'_>,
    heads: Range<usize>,
) -> Vec<Vec<f32>> {
    let width = heads.len() * DIM;
    let room = || AlignedBytes::zeroed("test", tile.tokens * width * 4).unwrap();
    let (q, out) = (room(), room());
    // SAFETY: both have room for the tile's rows, and there is one thread.
    unsafe {
        let [q, out] = [&q, &out].map(|rows| Rows::new(rows.base().cast(), width, width));
        for token in 0..tile.tokens {
            let query = |head| (0..DIM).map(move |d| value(head + 1 + 50 * token, d));
            let queries: Vec<f32> = heads.clone().flat_map(query).collect();
            q.row_mut(token).copy_from_slice(&queries);
        }
        let attention = Attention {
            pool,
            of,
            q,
            out,
            head_dim: DIM,
            scale: 0.125,
            causal: true,
            window: None,
            softcap: None,
            sinks: None,
            bias: None,
            rotation: None,
        };
        run_both_ways(&attention, isa, tile, &mut Scratch::new(DIM, heads.len()));
        (0..tile.tokens)
            .map(|token| out.row(token).to_vec())
            .collect()
    }
}
