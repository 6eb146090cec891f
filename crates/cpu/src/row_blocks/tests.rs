//! Attention between a step's own rows, against f64; alone and in company, with every instruction set, bit for bit.

use super::*;
use crate::context::Context;
use crate::isa::Isa;
use crate::kernels::attention::{Attention, Scratch};
use crate::kv::KvPool;
use crate::memory::AlignedBytes;
use crate::step::StepState;
use mettle_plan::{InputToken, StepLimits};

const KV_HEADS: usize = 2;
const SHARING: usize = 2;
const DIM: usize = 12;
const WIDTH: usize = KV_HEADS * DIM;

fn value(kind: usize, row: usize, column: usize) -> f32 {
    ((kind * 7919 + row * 104_729 + column * 1299) % 1009) as f32 / 300.0 - 1.7
}

/// The queries, keys or values of one sequence. Sequences of one length differ by their seed.
fn rows_of(kind: usize, seed: usize, tokens: usize, width: usize) -> Vec<f32> {
    let of_row = |row| (0..width).map(move |c| value(kind, row + 31 * seed, c));
    (0..tokens).flat_map(of_row).collect()
}

fn step_of(lengths: &[usize]) -> StepInput {
    let mut step = StepInput::new(0);
    for &length in lengths {
        step.push_sequence((0..length).map(|_| InputToken::Host(0)), 0);
    }
    step
}

fn bounds() -> Sizes {
    Sizes::bounds(1200, 8)
}

fn state_of(step: &StepInput) -> StepState {
    let mut state = StepState::new(&bounds(), 0);
    let layout = PageLayout::new(&[], TOKENS);
    let limits = StepLimits {
        fills_encoder: false,
        plans: 1,
        bounds: &bounds(),
        vocabulary: 1,
        kv_pages: 0,
        page_layout: &layout,
    };
    let pool = KvPool::new(&[], &layout, 0).unwrap();
    state.prepare(step, &limits, &pool).unwrap();
    state
}

fn memory(values: &[f32], width: usize) -> (AlignedBytes, Rows) {
    let bytes = AlignedBytes::zeroed("test", values.len() * 4).unwrap();
    // SAFETY: room for the rows, used by one thread.
    let rows = unsafe {
        std::ptr::copy_nonoverlapping(values.as_ptr(), bytes.base().cast(), values.len());
        Rows::new(bytes.base().cast(), width, width)
    };
    (bytes, rows)
}

/// The outputs of sequences with these (seed, length)s in one step.
fn run(isa: Isa, sequences: &[(usize, usize)]) -> Vec<f32> {
    let lengths: Vec<usize> = sequences.iter().map(|s| s.1).collect();
    let step = step_of(&lengths);
    let state = state_of(&step);
    let all = |kind, width| {
        let each = |&(seed, tokens): &(usize, usize)| rows_of(kind, seed, tokens, width);
        sequences.iter().flat_map(each).collect::<Vec<f32>>()
    };
    let tokens = step.tokens.len();
    let q = memory(&all(1, SHARING * WIDTH), SHARING * WIDTH);
    let k = memory(&all(2, WIDTH), WIDTH);
    let v = memory(&all(3, WIDTH), WIDTH);
    let out = memory(&vec![f32::NAN; tokens * SHARING * WIDTH], SHARING * WIDTH);
    let mut blocks = RowBlocks::new(KV_HEADS, DIM, &bounds()).unwrap();
    // What an earlier step left behind must take no part.
    let full = step_of(&[1200]);
    let nan = memory(&vec![f32::NAN; 1200 * WIDTH], WIDTH);
    blocks.prepare(&full).unwrap();
    for tile in state_of(&full).tiles {
        // SAFETY: one thread, and every row exists.
        unsafe { blocks.write(tile, nan.1, nan.1) };
    }
    blocks.prepare(&step).unwrap();
    for tile in &state.tiles {
        // SAFETY: as above.
        unsafe { blocks.write(*tile, k.1, v.1) };
    }
    let context = Context::Rows(&blocks);
    let columns = SHARING * DIM;
    let mut scratch = Scratch::new(DIM, SHARING);
    for head in 0..KV_HEADS {
        let attention = Attention {
            pool: context.pool(),
            of: context.head(head),
            q: q.1.columns(head * columns, columns),
            out: out.1.columns(head * columns, columns),
            head_dim: DIM,
            scale: 0.2,
            causal: context.is_causal(),
            window: None,
            softcap: None,
            sinks: None,
            bias: None,
            rotation: None,
        };
        for tile in &state.tiles {
            // SAFETY: as above.
            unsafe { attention.run(isa, context.tile(*tile), &mut scratch) };
        }
    }
    // SAFETY: as above.
    let row = |row| unsafe { out.1.row(row) }.to_vec();
    (0..tokens).flat_map(row).collect()
}

fn truth(seed: usize, tokens: usize, row: usize, head: usize) -> Vec<f64> {
    let q = rows_of(1, seed, tokens, SHARING * WIDTH);
    let (k, v) = (
        rows_of(2, seed, tokens, WIDTH),
        rows_of(3, seed, tokens, WIDTH),
    );
    let query = &q[row * SHARING * WIDTH + head * DIM..][..DIM];
    let at = |x: &[f32], token: usize, d: usize| x[token * WIDTH + head / SHARING * DIM + d] as f64;
    let weight = |token| {
        let products = (0..DIM).map(|d| query[d] as f64 * at(&k, token, d));
        (0.2 * products.sum::<f64>()).exp()
    };
    let weights: Vec<f64> = (0..tokens).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    let column = |d| (0..tokens).map(|t| weights[t] * at(&v, t, d) / sum).sum();
    (0..DIM).map(column).collect()
}

#[test]
fn every_row_sees_all_rows_of_its_sequence_and_no_other() {
    let sequences = [(0, 1), (1, 7), (2, 33), (3, 32), (4, 300), (5, 7), (6, 65)];
    let together = run(Isa::detect(), &sequences);
    let mut first = 0;
    for (seed, tokens) in sequences {
        for row in [0, tokens / 2, tokens - 1] {
            for head in 0..KV_HEADS * SHARING {
                let found = &together[(first + row) * SHARING * WIDTH + head * DIM..][..DIM];
                for (found, truth) in found.iter().zip(truth(seed, tokens, row, head)) {
                    // A few hundred f32 roundings of values near 1.
                    assert!(
                        (*found as f64 - truth).abs() < 1e-5,
                        "row {row} of {tokens}: {found} {truth}"
                    );
                }
            }
        }
        first += tokens;
    }
}

#[test]
fn company_and_instruction_sets_change_no_bit() {
    let sequences = [(4, 300), (1, 7), (2, 33), (7, 128), (3, 257)];
    let each = sequences.map(|sequence| run(Isa::Scalar, &[sequence]));
    let alone = each.concat();
    assert!(alone.iter().all(|v| v.is_finite()));
    for isa in Isa::available() {
        assert_eq!(run(isa, &sequences), alone, "{isa}");
    }
}

#[test]
fn a_sequence_in_pieces_is_refused() {
    let mut blocks = RowBlocks::new(KV_HEADS, DIM, &bounds()).unwrap();
    let mut step = step_of(&[5]);
    step.push_sequence((0..3).map(|_| InputToken::Host(0)), 2);
    let refused = blocks.prepare(&step).unwrap_err();
    let message = "sequence 1: 3 of its 5 tokens, and no cache holds the others";
    assert!(refused.to_string().ends_with(message), "{refused}");
}

#[test]
fn the_fullest_step_has_pages_enough() {
    let mut blocks = RowBlocks::new(KV_HEADS, DIM, &bounds()).unwrap();
    let step = step_of(&[33, 65, 97, 129, 161, 193, 225, 297]);
    assert_eq!((step.tokens.len(), step.sequences()), (1200, 8));
    blocks.prepare(&step).unwrap();
    assert_eq!(blocks.pages_of(7).len(), 10);
}
