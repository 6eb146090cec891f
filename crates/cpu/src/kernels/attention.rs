//! Owns attention of a few queries over one sequence's pages, for the query heads that share a KV head.
//!
//! Per query and head: the context is cut at multiples of 256 positions into partitions, these at multiples of 32 into
//! blocks. Inside a partition blocks are added by online softmax, first to last; partitions are then combined in order.
//! The cuts depend on absolute positions only, so chunks, batches and threads cannot change the result.

use super::exp::exp;
use super::norm::reduce;
use crate::isa::{Isa, for_each_isa};
use crate::kv::{HeadOf, KvPool, TOKENS};
use crate::memory::Rows;
use mettle_plan::BlockId;

/// Tokens in a partition: the unit that threads may share a long context by.
const PARTITION: usize = 256;

/// Query tokens that are computed together and share each block they read.
pub const TILE: usize = 16;

/// Neighbouring tokens of one sequence, and where their context lies.
#[derive(Clone, Copy)]
pub struct QueryTile<'a> {
    /// Row of the first query in the step, and its position in the sequence.
    pub row: usize,
    pub position: usize,
    pub tokens: usize,
    pub blocks: &'a [BlockId],
    pub first_page: usize,
}

#[derive(Clone, Copy)]
pub struct Attention<'a> {
    pub pool: &'a KvPool,
    pub of: HeadOf,
    /// Columns of the query heads that share this KV head, side by side.
    pub q: Rows,
    pub out: Rows,
    pub head_dim: usize,
    pub scale: f32,
}

/// One thread's working memory.
pub struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    /// Of the current partition, and of those before it.
    partition: Vec<Softmax>,
    total: Vec<Softmax>,
    partition_out: Vec<f32>,
    total_out: Vec<f32>,
}

/// A softmax under way: the largest score so far and the sum of exponentials relative to it.
#[derive(Clone, Copy)]
struct Softmax {
    largest: f32,
    sum: f32,
}

const EMPTY: Softmax = Softmax {
    largest: f32::NEG_INFINITY,
    sum: 0.0,
};

impl Scratch {
    pub fn new(head_dim: usize, heads_per_kv_head: usize) -> Scratch {
        let rows = TILE * heads_per_kv_head;
        Scratch {
            keys: vec![0.0; TOKENS * head_dim],
            values: vec![0.0; TOKENS * head_dim],
            queries: vec![0.0; rows * head_dim],
            partition: vec![EMPTY; rows],
            total: vec![EMPTY; rows],
            partition_out: vec![0.0; rows * head_dim],
            total_out: vec![0.0; rows * head_dim],
        }
    }
}

impl Attention<'_> {
    /// # Safety
    /// The tile's rows of q and out exist, its pages hold the keys and values of all positions up to its last, nobody
    /// writes those or touches these columns of `out` meanwhile.
    pub unsafe fn run(&self, isa: Isa, tile: QueryTile<'_>, scratch: &mut Scratch) {
        let dim = self.head_dim;
        let heads = self.q.width / dim;
        let rows = tile.tokens * heads;
        for token in 0..tile.tokens {
            // SAFETY: the caller's promise.
            let q = unsafe { self.q.row(tile.row + token) };
            let scaled = &mut scratch.queries[token * heads * dim..(token + 1) * heads * dim];
            for (s, q) in scaled.iter_mut().zip(q) {
                *s = q * self.scale;
            }
        }
        scratch.total[..rows].fill(EMPTY);
        scratch.total_out[..rows * dim].fill(0.0);
        let context = tile.position + tile.tokens;
        for partition in (0..context).step_by(PARTITION) {
            scratch.partition[..rows].fill(EMPTY);
            scratch.partition_out[..rows * dim].fill(0.0);
            for block in (partition..context.min(partition + PARTITION)).step_by(TOKENS) {
                // SAFETY: the caller's promise.
                unsafe { self.load_block(tile, block, scratch) };
                for row in 0..rows {
                    let visible = (tile.position + row / heads + 1).saturating_sub(block);
                    if visible > 0 {
                        let columns = row * dim..(row + 1) * dim;
                        add_block(
                            isa,
                            &scratch.queries[columns.clone()],
                            &scratch.keys[..dim * TOKENS],
                            &scratch.values[..dim * TOKENS],
                            visible.min(TOKENS),
                            &mut scratch.partition[row],
                            &mut scratch.partition_out[columns],
                        );
                    }
                }
            }
            for row in 0..rows {
                let columns = row * dim..(row + 1) * dim;
                combine(
                    isa,
                    &mut scratch.total[row],
                    &mut scratch.total_out[columns.clone()],
                    &scratch.partition[row],
                    &scratch.partition_out[columns],
                );
            }
        }
        for token in 0..tile.tokens {
            // SAFETY: the caller's promise.
            let out = unsafe { self.out.row_mut(tile.row + token) };
            for (head, out) in out.chunks_exact_mut(dim).enumerate() {
                let row = token * heads + head;
                let inverse = 1.0 / scratch.total[row].sum;
                let from = &scratch.total_out[row * dim..(row + 1) * dim];
                for (o, t) in out.iter_mut().zip(from) {
                    *o = t * inverse;
                }
            }
        }
    }

    /// # Safety
    /// As for `run`.
    unsafe fn load_block(&self, tile: QueryTile<'_>, position: usize, scratch: &mut Scratch) {
        let tokens_per_page = self.pool.tokens_per_page(self.of.kv.group);
        let page = tile.blocks[position / tokens_per_page - tile.first_page];
        let block = position % tokens_per_page / TOKENS;
        let room = TOKENS * self.head_dim;
        // SAFETY: the caller's promise.
        unsafe {
            self.pool.read(
                self.of,
                page,
                block,
                &mut scratch.keys[..room],
                &mut scratch.values[..room],
            )
        }
    }
}

for_each_isa! {
    /// Adds the first `visible` tokens of a block to one head's softmax. What lies behind them in the page may be
    /// anything, NaN included, and takes no part.
    fn add_block(
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        visible: usize,
        state: &mut Softmax,
        out: &mut [f32],
    ) {
        let mut scores = [0.0_f32; TOKENS];
        for (q, keys) in query.iter().zip(keys.chunks_exact(TOKENS)) {
            for (score, k) in scores.iter_mut().zip(keys) {
                *score = q.mul_add(*k, *score);
            }
        }
        scores[visible..].fill(f32::NEG_INFINITY);
        let mut largest = state.largest;
        for score in scores {
            largest = if score > largest { score } else { largest };
        }
        let mut sums = [0.0_f32; 8];
        for eight in scores.chunks_exact_mut(8) {
            for (score, sum) in eight.iter_mut().zip(&mut sums) {
                *score = exp(*score - largest);
                *sum += *score;
            }
        }
        let shrink = exp(state.largest - largest);
        *state = Softmax { largest, sum: state.sum.mul_add(shrink, reduce(&sums)) };
        add_values::<32>(&scores[..visible], values, shrink, out);
    }
}

/// `out = out * shrink + weights · values`, `W` columns at a time in registers.
#[inline(always)]
fn add_values<const W: usize>(weights: &[f32], values: &[f32], shrink: f32, out: &mut [f32]) {
    let width = out.len();
    let mut column = 0;
    while column + W <= width {
        let mut sums = [0.0_f32; W];
        for (sum, o) in sums.iter_mut().zip(&out[column..column + W]) {
            *sum = o * shrink;
        }
        for (weight, values) in weights.iter().zip(values.chunks_exact(width)) {
            for (sum, v) in sums.iter_mut().zip(&values[column..column + W]) {
                *sum = weight.mul_add(*v, *sum);
            }
        }
        out[column..column + W].copy_from_slice(&sums);
        column += W;
    }
    for column in column..width {
        let mut sum = out[column] * shrink;
        for (weight, values) in weights.iter().zip(values.chunks_exact(width)) {
            sum = weight.mul_add(values[column], sum);
        }
        out[column] = sum;
    }
}

for_each_isa! {
    /// Adds a partition to those before it.
    fn combine(total: &mut Softmax, out: &mut [f32], part: &Softmax, part_out: &[f32]) {
        if part.largest == f32::NEG_INFINITY {
            return;
        }
        let largest = if part.largest > total.largest { part.largest } else { total.largest };
        let (a, b) = (exp(total.largest - largest), exp(part.largest - largest));
        *total = Softmax { largest, sum: part.sum.mul_add(b, total.sum * a) };
        for (o, p) in out.iter_mut().zip(part_out) {
            *o = p.mul_add(b, *o * a);
        }
    }
}

#[cfg(test)]
mod tests;
