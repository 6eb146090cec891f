//! Owns the arithmetic of attention over one block of 32 tokens, for a few rows that share every load.

use super::softmaxes::{NOTHING, ROOM, Softmaxes};
use crate::kernels::exp::exp_of_negatives;
use crate::kernels::tanh::softcap;
use crate::kv::TOKENS;
use crate::lanes::{Floats, Lanes, Steps};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// How keys and values are stored.
pub trait Element {
    /// # Safety
    /// Eight elements from `index` on can be read.
    unsafe fn load<L: Lanes>(p: *const u8, index: usize) -> L;

    const BYTES: usize;

    /// Whether it is read from pages; else it was just written to memory.
    const PAGED: bool;
}

pub struct Singles;
pub struct Halves;
/// Singles that were halves: near already.
pub struct Widened;

impl Element for Widened {
    const BYTES: usize = 4;
    const PAGED: bool = false;

    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8, index: usize) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load(p.cast::<f32>().add(index)) }
    }
}

impl Element for Singles {
    const BYTES: usize = 4;
    const PAGED: bool = true;

    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8, index: usize) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load(p.cast::<f32>().add(index)) }
    }
}

impl Element for Halves {
    const BYTES: usize = 2;
    const PAGED: bool = true;

    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8, index: usize) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_halves(p.cast::<u16>().add(index)) }
    }
}

/// Keys `[dim][32]` and values `[32][dim]`.
pub struct Block<E> {
    keys: *const u8,
    values: *const u8,
    /// The keys and values that are needed next: blocks lie in different pages, where the processor does not look by
    /// itself. A whole block ahead, since memory is that far away.
    next: [*const u8; 2],
    asks_near: bool,
    dim: usize,
    element: PhantomData<E>,
}

impl<E> Block<E> {
    pub fn new(
        keys: *const u8,
        values: *const u8,
        next: [*const u8; 2],
        asks_near: bool,
        dim: usize,
    ) -> Block<E> {
        Block {
            keys,
            values,
            next,
            asks_near,
            dim,
            element: PhantomData,
        }
    }
}

/// Runs the body for groups of three rows and for those left, whose number is `$r` there. Four are two pairs: a row alone waits
/// for itself. Wide registers have room for the sums of twelve or six.
macro_rules! for_groups {
    ($rows:expr, $row:ident, $r:ident => $body:block) => {{
        let mut $row = 0;
        if L::IS_WIDE && MOST >= 12 {
            while $row + 12 <= $rows {
                const $r: usize = 12;
                $body
                $row += $r;
            }
            while $row + 6 <= $rows {
                const $r: usize = 6;
                $body
                $row += $r;
            }
        }
        while $row + 3 <= $rows && $rows - $row != 4 {
            const $r: usize = 3;
            $body
            $row += $r;
        }
        while $row + 2 <= $rows {
            const $r: usize = 2;
            $body
            $row += $r;
        }
        if $row < $rows {
            const $r: usize = 1;
            $body
        }
    }};
}

/// Registers of scores a row.
const FOURS: usize = TOKENS / 8;

/// Rows that are taken through a block together. Their softmaxes are chains of dependent steps: side by side they hide each
/// other's waiting.
pub const TOGETHER: usize = 12;

/// Adds the tokens that each of a few rows sees (`visible`: the first and one past the last) of a block to its softmax, their
/// scores raised by the row's `biases`, if there are any. What lies around them in the page may be anything, NaN included,
/// and takes no part.
///
/// # Safety
/// The block exists; `queries` and `out` have as many rows of `dim` values as `rows` has, `MOST` at the most; every row sees a
/// token.
#[inline(always)]
pub unsafe fn add_block<L: Lanes, E: Element, const MOST: usize>(
    block: &Block<E>,
    queries: *const f32,
    visible: &[Range<usize>],
    biases: &[&[f32; TOKENS]],
    cap: Option<f32>,
    softmaxes: &mut Softmaxes,
    rows: Range<usize>,
    out: *mut f32,
) {
    let (dim, first, rows) = (block.dim, rows.start, rows.len());
    assert!(rows <= MOST && visible.len() == rows);
    const { assert!(MOST <= TOGETHER) };
    // Scores, then weights. Filled here and not twice: zeros for all of them took a fiftieth of the time.
    let mut weights = MaybeUninit::<[[f32; TOKENS]; MOST]>::uninit();
    let scores = weights.as_mut_ptr().cast::<[f32; TOKENS]>();
    // SAFETY: the caller's promise; groups stay below `rows`, which has a place each.
    unsafe {
        for_groups!(rows, row, R => {
            add_keys::<L, E, R>(block, queries.add(row * dim), scores.add(row));
        });
    }
    // SAFETY: all 32 values of these rows were just written, and nobody else knows of them.
    let weights = unsafe { std::slice::from_raw_parts_mut(scores, rows) };
    amend::<L>(weights, biases, cap, visible);
    let shrinks = softmax::<L>(weights, softmaxes, first);
    // SAFETY: the caller's promise; groups stay below `rows`.
    unsafe {
        for_groups!(rows, row, R => {
            let seen = &visible[row..row + R];
            let weights = weights[row..row + R].first_chunk::<R>().expect("R rows");
            let shrinks = *shrinks[row..row + R].first_chunk::<R>().expect("R rows");
            add_values_seen::<L, E, R>(block, weights, seen, shrinks, out.add(row * dim));
        });
    }
}

/// Makes products of queries and keys the scores of what each row sees, -infinity elsewhere.
#[inline(always)]
pub fn amend<L: Lanes>(
    scores: &mut [[f32; TOKENS]],
    biases: &[&[f32; TOKENS]],
    cap: Option<f32>,
    visible: &[Range<usize>],
) {
    for r in 0..biases.len() {
        for i in 0..FOURS {
            // SAFETY: 32 values each.
            unsafe {
                let at = scores[r].as_mut_ptr().add(8 * i);
                let bias = L::load(biases[r].as_ptr().add(8 * i));
                L::load(at).add(bias).store(at);
            }
        }
    }
    if let Some(cap) = cap {
        cap_scores::<L>(scores, cap);
    }
    for r in 0..scores.len() {
        if visible[r].len() < TOKENS {
            scores[r][..visible[r].start].fill(f32::NEG_INFINITY);
            scores[r][visible[r].end..].fill(f32::NEG_INFINITY);
        }
    }
}

/// Turns the scores of rows from `first` on into weights, adds these to the softmaxes and gives what sums shrink by.
#[inline(always)]
fn softmax<L: Lanes>(
    scores: &mut [[f32; TOKENS]],
    softmaxes: &mut Softmaxes,
    first: usize,
) -> [f32; ROOM] {
    let rows = scores.len();
    let largest = &mut softmaxes.largest[first..first + ROOM];
    let sum = &mut softmaxes.sum[first..first + ROOM];
    let mut shrinks = [0.0_f32; ROOM];
    // Registers also hold rows behind these. To those nothing is added: they stay what they are.
    for eight in (0..rows).step_by(8) {
        let mut all = [L::splat(f32::NEG_INFINITY); 8];
        for r in 0..8.min(rows - eight) {
            for i in 0..FOURS {
                // SAFETY: 32 values.
                let score = unsafe { L::load(scores[eight + r].as_ptr().add(8 * i)) };
                all[r] = score.larger(all[r]);
            }
        }
        // SAFETY: eight values each.
        unsafe {
            let before = L::load(largest.as_ptr().add(eight));
            let larger = L::largest_of_each(all).larger(before);
            larger.store(largest.as_mut_ptr().add(eight));
            let shrink = exp_of_negatives([before.sub(larger)])[0];
            shrink.store(shrinks.as_mut_ptr().add(eight));
        }
    }
    for r in 0..rows {
        exponentials::<L::Wide>(&mut scores[r], largest[r]);
    }
    for eight in (0..rows).step_by(8) {
        let mut all = [L::splat(0.0); 8];
        for r in 0..8.min(rows - eight) {
            all[r] = eighths(&scores[eight + r]);
        }
        // SAFETY: eight values each.
        unsafe {
            let before = L::load(sum.as_ptr().add(eight));
            let shrink = L::load(shrinks.as_ptr().add(eight));
            let after = before.mul_add(shrink, L::sum_of_each(all));
            after.store(sum.as_mut_ptr().add(eight));
        }
    }
    shrinks
}

/// Every eighth of a row added up, first to last.
#[inline(always)]
fn eighths<L: Lanes>(weights: &[f32; TOKENS]) -> L {
    let mut sums = L::splat(0.0);
    for i in 0..FOURS {
        // SAFETY: 32 values.
        sums = sums.add(unsafe { L::load(weights.as_ptr().add(8 * i)) });
    }
    sums
}

/// `e^(score - largest)`
#[inline(always)]
fn exponentials<F: Floats>(scores: &mut [f32; TOKENS], largest: f32) {
    // The widest registers need fewer: what is left over is not stored, so it is not computed either.
    let mut all = [F::splat(0.0); FOURS];
    for i in 0..TOKENS / F::WIDTH {
        // SAFETY: 32 values.
        all[i] = unsafe { F::load(scores.as_ptr().add(F::WIDTH * i)) }.sub(F::splat(largest));
    }
    let all = exp_of_negatives(all);
    for i in 0..TOKENS / F::WIDTH {
        // SAFETY: the same.
        unsafe { all[i].store(scores.as_mut_ptr().add(F::WIDTH * i)) };
    }
}

/// The values that the rows of a group see, each row's first to last.
///
/// # Safety
/// As for `add_block`.
#[inline(always)]
pub unsafe fn add_values_seen<L: Lanes, E: Element, const R: usize>(
    block: &Block<E>,
    weights: &[[f32; TOKENS]; R],
    visible: &[Range<usize>],
    shrinks: [f32; R],
    out: *mut f32,
) {
    // Rows whose windows start at the same token share the loads of all that they have in common, others nothing.
    let mut shared = visible[0].start..TOKENS;
    for r in 0..R {
        shared.end = match visible[r].start == shared.start {
            true => shared.end.min(visible[r].end),
            false => shared.start,
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        add_values::<L, E, R>(block, weights, shared.clone(), shrinks, out);
        // What some rows see and others do not.
        for r in 0..R {
            let from = match shared.is_empty() {
                true => visible[r].start,
                false => shared.end,
            };
            if from < visible[r].end {
                let weights = std::slice::from_ref(&weights[r]);
                let weights: &[[f32; TOKENS]; 1] = weights.try_into().expect("one row");
                let out = out.add(r * block.dim);
                add_values::<L, E, 1>(block, weights, from..visible[r].end, [1.0], out);
            }
        }
    }
}

/// `cap * tanh(score / cap)`.
#[inline(always)]
fn cap_scores<L: Lanes>(scores: &mut [[f32; TOKENS]], cap: f32) {
    let cap = L::splat(cap);
    for row in scores {
        for i in 0..FOURS {
            // SAFETY: 32 values.
            unsafe {
                let at = row.as_mut_ptr().add(8 * i);
                softcap(L::load(at), cap).store(at);
            }
        }
    }
}

/// Whether sums of `R` rows in four registers each leave enough for what is added to them. What was widened before needs
/// none: it is read by the multiplication itself.
const fn fits_at_once<L: Lanes, E: Element, const R: usize>() -> bool {
    L::REGISTERS >= 32 || !E::PAGED || R < 3 || L::ADDS_THREE_ROWS && E::BYTES == 2
}

/// Scores of all tokens of the block.
///
/// # Safety
/// As for `add_block`, with `R` rows, and as many places for scores.
#[inline(always)]
unsafe fn add_keys<L: Lanes, E: Element, const R: usize>(
    block: &Block<E>,
    queries: *const f32,
    scores: *mut [f32; TOKENS],
) {
    // SAFETY: the caller's promise.
    unsafe {
        if L::IS_WIDE {
            let steps = steps_of_keys(block, queries, 0);
            add_wide::<L, E, R>(scores.cast(), TOKENS, None, steps);
        } else if fits_at_once::<L, E, R>() {
            add_some_keys::<L, E, R, FOURS>(block, queries, 0, scores);
        } else {
            add_some_keys::<L, E, R, { FOURS / 2 }>(block, queries, 0, scores);
            add_some_keys::<L, E, R, { FOURS / 2 }>(block, queries, FOURS / 2, scores);
        }
    }
}

/// Scores of `C` registers of tokens from register `first` on.
///
/// # Safety
/// As for `add_keys`.
#[inline(always)]
unsafe fn add_some_keys<L: Lanes, E: Element, const R: usize, const C: usize>(
    block: &Block<E>,
    queries: *const f32,
    first: usize,
    scores: *mut [f32; TOKENS],
) {
    let steps = steps_of_keys(block, queries, first);
    let mut own = [[L::splat(0.0); C]; R];
    // SAFETY: the caller's promise.
    unsafe { add_steps::<L, E, R, C>(&mut own, steps, first == 0) };
    for r in 0..R {
        for c in 0..C {
            // SAFETY: 32 values a row.
            unsafe { own[r][c].store(scores.add(r).cast::<f32>().add(8 * (first + c))) };
        }
    }
}

/// Over a row of keys each, from register `first` on.
#[inline(always)]
fn steps_of_keys<E: Element>(block: &Block<E>, queries: *const f32, first: usize) -> Steps {
    let offset = 8 * first * E::BYTES;
    Steps {
        count: block.dim,
        factors: queries,
        row: block.dim,
        elements: block.keys.wrapping_add(offset),
        step: TOKENS * E::BYTES,
        next: block.next[0].wrapping_add(offset),
        asks_near: block.asks_near,
    }
}

/// `Lanes::add_wide` over elements as they are stored.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn add_wide<L: Lanes, E: Element, const R: usize>(
    sums: *mut f32,
    row: usize,
    start: Option<[f32; R]>,
    steps: Steps,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (E::BYTES, E::PAGED) {
            (2, true) => L::add_wide::<R, true, true>(sums, row, start, steps),
            (2, false) => L::add_wide::<R, true, false>(sums, row, start, steps),
            (_, true) => L::add_wide::<R, false, true>(sums, row, start, steps),
            (_, false) => L::add_wide::<R, false, false>(sums, row, start, steps),
        }
    }
}

/// Adds all steps to `C` registers a row, and asks for what lies `next`.
///
/// # Safety
/// In every step there are `R` factors and `C` registers of elements.
#[inline(always)]
unsafe fn add_steps<L: Lanes, E: Element, const R: usize, const C: usize>(
    sums: &mut [[L; C]; R],
    steps: Steps,
    ask: bool,
) {
    if L::ADDS_THREE_ROWS && R == 3 && C == 4 && E::BYTES == 2 {
        // SAFETY: three rows of four registers of halves, and the caller's promise.
        return unsafe { L::add_three_rows(sums.as_mut_ptr().cast(), steps) };
    }
    for i in 0..steps.count {
        let offset = i * steps.step;
        if E::PAGED && ask {
            L::prefetch(steps.next.wrapping_add(offset));
        }
        // SAFETY: the caller's promise.
        unsafe {
            let mut factor = [L::splat(0.0); R];
            for r in 0..R {
                factor[r] = L::splat(*steps.factors.add(r * steps.row + i));
            }
            for c in 0..C {
                let element = E::load::<L>(steps.elements.add(offset), 8 * c);
                for r in 0..R {
                    sums[r][c] = factor[r].mul_add(element, sums[r][c]);
                }
            }
        }
    }
}

/// `out = out * shrink + weights · values` over some tokens, a few registers of columns at a time.
///
/// # Safety
/// As for `add_block`.
#[inline(always)]
unsafe fn add_values<L: Lanes, E: Element, const R: usize>(
    block: &Block<E>,
    weights: &[[f32; TOKENS]; R],
    tokens: Range<usize>,
    shrinks: [f32; R],
    out: *mut f32,
) {
    let dim = block.dim;
    let mut column = 0;
    // SAFETY: the caller's promise; columns stay below `dim`.
    unsafe {
        while L::IS_WIDE && column + 32 <= dim {
            let steps = steps_of_values(block, weights, tokens.clone(), column);
            add_wide::<L, E, R>(out.add(column), dim, Some(shrinks), steps);
            column += 32;
        }
        while fits_at_once::<L, E, R>() && column + 32 <= dim {
            add_columns::<L, E, R, 4>(block, weights, tokens.clone(), shrinks, out, column);
            column += 32;
        }
        while column + 16 <= dim {
            add_columns::<L, E, R, 2>(block, weights, tokens.clone(), shrinks, out, column);
            column += 16;
        }
        while column + 8 <= dim {
            add_columns::<L, E, R, 1>(block, weights, tokens.clone(), shrinks, out, column);
            column += 8;
        }
        if column < dim {
            let mut rest = [0.0_f32; 8];
            for r in 0..R {
                for c in column..dim {
                    rest[c - column] = *out.add(r * dim + c) * shrinks[r];
                }
                for token in tokens.clone() {
                    // The end of the last row: eight elements may not be there.
                    let first = dim.saturating_sub(8);
                    let values: [f32; 8] = match dim >= 8 {
                        true => E::load::<L>(block.values, token * dim + first).to_array(),
                        false => narrow::<L, E>(block, token),
                    };
                    for c in column..dim {
                        let value = values[c - first];
                        rest[c - column] = weights[r][token].mul_add(value, rest[c - column]);
                    }
                }
                for c in column..dim {
                    *out.add(r * dim + c) = rest[c - column];
                }
            }
        }
    }
}

/// The values of a token whose head is narrower than a register.
///
/// # Safety
/// As for `add_block`.
#[inline(always)]
unsafe fn narrow<L: Lanes, E: Element>(block: &Block<E>, token: usize) -> [f32; 8] {
    let dim = block.dim;
    // A block has 32 rows, so eight elements that end with the row's last exist unless the row is among the first.
    let end = (token + 1) * dim;
    let first = end.saturating_sub(8);
    // SAFETY: the caller's promise; 32 rows are eight elements and more.
    let eight = unsafe { E::load::<L>(block.values, first) }.to_array();
    let mut values = [0.0; 8];
    for c in 0..dim {
        values[c] = eight[token * dim + c - first];
    }
    values
}

/// Over some tokens' values, from a column on.
#[inline(always)]
fn steps_of_values<E: Element, const R: usize>(
    block: &Block<E>,
    weights: &[[f32; TOKENS]; R],
    tokens: Range<usize>,
    column: usize,
) -> Steps {
    let offset = (tokens.start * block.dim + column) * E::BYTES;
    Steps {
        count: tokens.len(),
        factors: weights.as_ptr().cast::<f32>().wrapping_add(tokens.start),
        row: TOKENS,
        elements: block.values.wrapping_add(offset),
        step: block.dim * E::BYTES,
        next: block.next[1].wrapping_add(offset),
        asks_near: block.asks_near,
    }
}

/// `C` registers of columns from `column` on.
///
/// # Safety
/// As for `add_block`.
#[inline(always)]
unsafe fn add_columns<L: Lanes, E: Element, const R: usize, const C: usize>(
    block: &Block<E>,
    weights: &[[f32; TOKENS]; R],
    tokens: Range<usize>,
    shrinks: [f32; R],
    out: *mut f32,
    column: usize,
) {
    let dim = block.dim;
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[L::splat(0.0); C]; R];
        for r in 0..R {
            for c in 0..C {
                let before = L::load(out.add(r * dim + column + 8 * c));
                sums[r][c] = before.mul(L::splat(shrinks[r]));
            }
        }
        let steps = steps_of_values(block, weights, tokens, column);
        add_steps::<L, E, R, C>(&mut sums, steps, column.is_multiple_of(32));
        for r in 0..R {
            for c in 0..C {
                sums[r][c].store(out.add(r * dim + column + 8 * c));
            }
        }
    }
}

/// Adds partitions to those before them, for up to eight rows.
#[inline(always)]
pub fn combine<L: Lanes>(
    rows: Range<usize>,
    dim: usize,
    totals: &mut Softmaxes,
    totals_out: &mut [f32],
    parts: &Softmaxes,
    parts_out: &[f32],
) {
    let first = rows.start;
    assert!(rows.len() <= 8 && totals.largest.len() >= first + 8 && parts.sum.len() >= first + 8);
    // SAFETY: eight values of each are there.
    let (largest, sum, shrinks) = unsafe {
        let [before, part] = [&*totals, parts].map(|x| L::load(x.largest.as_ptr().add(first)));
        let largest = part.larger(before);
        let shrinks = exp_of_negatives([before.sub(largest), part.sub(largest)]);
        let [before, part] = [&*totals, parts].map(|x| L::load(x.sum.as_ptr().add(first)));
        let sum = part.mul_add(shrinks[1], before.mul(shrinks[0]));
        (largest.to_array(), sum.to_array(), shrinks.map(L::to_array))
    };
    for row in rows {
        if parts.largest[row] == NOTHING {
            continue;
        }
        let i = row - first;
        totals.largest[row] = largest[i];
        totals.sum[row] = sum[i];
        let (before, part) = (shrinks[0][i], shrinks[1][i]);
        let out = &mut totals_out[row * dim..(row + 1) * dim];
        let part_out = &parts_out[row * dim..(row + 1) * dim];
        for i in 0..dim {
            out[i] = part_out[i].mul_add(part, out[i] * before);
        }
    }
}
