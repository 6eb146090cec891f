//! Owns attention of twelve rows over a partition of the context, in AVX-512's registers.
//!
//! A prompt's rows are many, so they are taken twelve by twelve through all blocks of a partition: 24 sums, what they grow by and its
//! factors fill the 32 registers. Sums of values stay in them as long as all twelve rows see whole blocks, and of a whole partition until
//! they are added to those before. The largest scores and the exponentials of a block are found beside the scores of the next: they are
//! chains of dependent steps, which wait for themselves where nothing else is to be done. What is computed is what [`super::block`] computes, in the same order for every row: the same bits.

#![allow(
    clippy::needless_range_loop,
    reason = "iterator adapters are compiled without the kernels' instructions and may stay calls"
)]

mod products;

use self::products::{Beside, halves, singles};
use super::PARTITION;
use super::bias::{BiasRows, NO_BIAS};
use super::block::{Block, Element, Halves, Widened, add_values_seen, amend};
use super::sight::Sight;
use super::softmaxes::{NOTHING, Softmaxes};
use crate::kernels::exp::exp_of_negatives;
use crate::kv::TOKENS;
use crate::lanes::{Avx512, Floats, Sixteen, across_four, across_fours};
use crate::memory::ALIGNMENT;
use mettle_plan::KvElement;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows that go through a partition together.
pub const ROWS: usize = 12;

/// Columns of values that registers hold sums of.
pub const COLUMNS: usize = 32;

/// Whether it is worth it: a single token reads each block once and asks for the next one meanwhile; of the last twelve rows those
/// that do not count take time too (at most an eighth more).
pub fn pays(tokens: usize, rows: usize, dim: usize) -> bool {
    let more = rows.next_multiple_of(ROWS) - rows;
    tokens > 1 && more <= rows / 8 && dim.is_multiple_of(COLUMNS)
}

pub const BLOCKS: usize = PARTITION / TOKENS;

/// A value of each row, and what is left of a register.
type OfRows = [f32; 16];

/// One thread's working memory.
#[repr(C, align(64))]
pub struct Room {
    /// Scores, then weights.
    weights: [[[f32; TOKENS]; ROWS]; BLOCKS],
    /// The largest scores before each block and after the last, and what sums shrink by when it is added.
    largest: [OfRows; BLOCKS + 1],
    shrinks: [OfRows; BLOCKS],
    /// Of the newest weights, and of those before: every eighth of a row added up.
    eighths: [[[f32; 8]; ROWS]; 2],
}

impl Room {
    pub const EMPTY: Room = Room {
        weights: [[[0.0; TOKENS]; ROWS]; BLOCKS],
        largest: [[0.0; 16]; BLOCKS + 1],
        shrinks: [[0.0; 16]; BLOCKS],
        eighths: [[[0.0; 8]; ROWS]; 2],
    };
}

/// Blocks that are read later, asked for a few lines at a time: all at once they would be more than a processor waits for, and what
/// is read now would wait behind them.
pub struct Ahead {
    /// Keys and values.
    blocks: [*const u8; 2 * BLOCKS],
    count: usize,
    /// Of each.
    bytes: usize,
    lines_a_step: usize,
    /// What is asked for next.
    block: usize,
    offset: usize,
}

impl Ahead {
    /// Blocks of so many bytes each, which are to be asked for by the end of so many steps.
    pub fn new(blocks: impl Iterator<Item = *const u8>, bytes: usize, steps: usize) -> Ahead {
        let mut ahead = Ahead {
            blocks: [std::ptr::null(); 2 * BLOCKS],
            count: 0,
            bytes,
            lines_a_step: 0,
            block: 0,
            offset: 0,
        };
        for (place, block) in ahead.blocks.iter_mut().zip(blocks) {
            *place = block;
            ahead.count += 1;
        }
        let lines = ahead.count * bytes.div_ceil(ALIGNMENT);
        ahead.lines_a_step = lines.div_ceil(steps.max(1));
        ahead
    }

    #[inline(always)]
    fn ask(&mut self) {
        for _ in 0..self.lines_a_step {
            if self.block == self.count {
                return;
            }
            let line = self.blocks[self.block].wrapping_add(self.offset);
            // SAFETY: a prefetch does not fault.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
            self.offset += ALIGNMENT;
            if self.offset >= self.bytes {
                (self.block, self.offset) = (self.block + 1, 0);
            }
        }
    }
}

/// Neighbouring blocks of one partition.
pub struct Stretch<'a> {
    /// `[dim][32]` each.
    pub keys: [*const u8; BLOCKS],
    /// `[32][dim]` each.
    pub values: [*const u8; BLOCKS],
    pub element: KvElement,
    pub count: usize,
    /// Position of the first.
    pub start: usize,
    /// Of heads: a multiple of [`COLUMNS`].
    pub dim: usize,
    pub sight: Sight,
    pub softcap: Option<f32>,
    pub bias: Option<BiasRows<'a>>,
    /// The blocks of the partition behind it.
    pub ahead: Ahead,
}

impl Stretch<'_> {
    /// Takes some rows through the blocks and adds the result to the partitions before, whose softmaxes and sums are `totals` and `out`.
    ///
    /// # Safety
    /// The blocks exist. There are twelve rows of `dim` values from `queries`, `part` and `out` on, of which `rows` count; nobody else
    /// touches `part` and `out`; the processor has AVX-512.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
    pub unsafe fn add(
        &mut self,
        rows: Range<usize>,
        queries: *const f32,
        part: *mut f32,
        totals: &mut Softmaxes,
        out: *mut f32,
        room: &mut Room,
    ) {
        let blocks = self.blocks_seen(rows.clone());
        if blocks.is_empty() {
            return;
        }
        assert!(rows.len() <= ROWS && blocks.end <= BLOCKS);
        let mut sums = Sums {
            relative_to: Sixteen::splat(NOTHING),
            of_rows: Sixteen::splat(0.0),
        };
        room.largest[blocks.start] = [NOTHING; 16];
        let (mut before, last) = (None, blocks.end - 1);
        for b in blocks.clone() {
            let beside = Beside {
                scores: room.weights[before.unwrap_or(b)].as_mut_ptr(),
                largest: room.largest.as_mut_ptr().wrapping_add(b),
                eighths: room.eighths[before.unwrap_or(b) % 2].as_mut_ptr(),
                rows: if before.is_some() { ROWS } else { 0 },
            };
            let (keys, dim) = (self.keys[b], self.dim);
            let next = match b + 1 < blocks.end {
                true => self.keys[b + 1],
                false => self.values[blocks.start],
            };
            self.ahead.ask();
            let scores = &mut room.weights[b];
            // SAFETY: the caller's promise.
            let left = unsafe {
                match self.element {
                    KvElement::F16 => halves::scores(queries, dim, keys, next, beside, scores),
                    KvElement::F32 => singles::scores(queries, dim, keys, next, beside, scores),
                }
            };
            if let Some(before) = before {
                make_weights(ROWS - left, before, room);
                if before > blocks.start {
                    add_weights(&mut sums, before - 1, room);
                }
            }
            self.amend(rows.clone(), b, &mut room.weights[b]);
            before = Some(b);
        }
        add_largest(last, room);
        make_weights(0, last, room);
        for block in last.saturating_sub(1).max(blocks.start)..=last {
            add_weights(&mut sums, block, room);
        }
        let factors = sums.add_to(rows.clone(), totals);
        let whole = [blocks.start, last].map(|b| self.position(b));
        let whole = whole.iter().all(|&b| self.sight.sees_all(rows.clone(), b));
        // SAFETY: the caller's promise.
        unsafe {
            if whole && sums.is_of_all(rows.len()) {
                for column in (0..self.dim).step_by(COLUMNS) {
                    self.add_columns(column, blocks.clone(), out, &factors, room);
                }
            } else {
                std::ptr::write_bytes(part, 0, ROWS * self.dim);
                self.add_values(rows.clone(), blocks, part, room);
                sums.combine(rows.len(), &factors, part, out, self.dim);
            }
        }
    }

    fn position(&self, block: usize) -> usize {
        self.start + block * TOKENS
    }

    /// The blocks that some of the rows see a token of.
    fn blocks_seen(&self, rows: Range<usize>) -> Range<usize> {
        let Range { start, end } = self.sight.positions(rows);
        let first = start.saturating_sub(self.start) / TOKENS;
        first
            ..end
                .saturating_sub(self.start)
                .div_ceil(TOKENS)
                .min(self.count)
    }

    /// What is not a product of queries and keys.
    #[inline(always)]
    fn amend(&self, rows: Range<usize>, block: usize, scores: &mut [[f32; TOKENS]; ROWS]) {
        let position = self.position(block);
        let sees_all = self.sight.sees_all(rows.clone(), position);
        if sees_all && self.softcap.is_none() && self.bias.is_none() {
            return;
        }
        let visible = self.visible(rows.clone(), block);
        let mut biases = [&NO_BIAS; ROWS];
        let mut biased = 0;
        if let Some(bias) = self.bias {
            biased = rows.len();
            for i in 0..biased {
                let (head, query) = self.sight.query(rows.start + i);
                biases[i] = bias.of_block(head, query, position);
            }
        }
        let scores = &mut scores[..rows.len()];
        amend::<Avx512>(scores, &biases[..biased], self.softcap, &visible);
    }

    /// What each row sees of a block. Rows that do not count see what the last does.
    #[inline(always)]
    fn visible(&self, rows: Range<usize>, block: usize) -> [Range<usize>; ROWS] {
        let mut visible = [const { 0..0 }; ROWS];
        for i in 0..ROWS {
            let row = rows.start + i.min(rows.len() - 1);
            visible[i] = self.sight.visible(row, self.position(block));
        }
        visible
    }

    /// # Safety
    /// As for `add`, and `room` holds the blocks' weights.
    #[inline(always)]
    unsafe fn add_values(
        &self,
        rows: Range<usize>,
        blocks: Range<usize>,
        out: *mut f32,
        room: &Room,
    ) {
        let mut next = blocks.start;
        while next < blocks.end {
            let first = next;
            while next < blocks.end && self.sight.sees_all(rows.clone(), self.position(next)) {
                next += 1;
            }
            // SAFETY: the caller's promise.
            unsafe {
                if next > first {
                    for column in (0..self.dim).step_by(COLUMNS) {
                        self.add_columns(column, first..next, out, std::ptr::null(), room);
                    }
                } else {
                    match self.element {
                        KvElement::F16 => {
                            self.add_values_seen::<Halves>(rows.clone(), first, out, room)
                        }
                        KvElement::F32 => {
                            self.add_values_seen::<Widened>(rows.clone(), first, out, room)
                        }
                    }
                    next += 1;
                }
            }
        }
    }

    /// Some columns of blocks that all rows see, with `factors` as [`halves::values`] takes them.
    ///
    /// # Safety
    /// As for `add_values`.
    #[inline(always)]
    unsafe fn add_columns(
        &self,
        column: usize,
        blocks: Range<usize>,
        out: *mut f32,
        factors: *const [OfRows; 2],
        room: &Room,
    ) {
        let offset = column * self.element.bytes();
        // Behind the last block come the next columns of the first.
        let next = offset + COLUMNS * self.element.bytes();
        let mut from = [self.values[blocks.start].wrapping_add(next); BLOCKS + 1];
        for i in 0..blocks.len() {
            from[i] = self.values[blocks.start + i].wrapping_add(offset);
        }
        let (dim, count, from) = (self.dim, blocks.len(), from.as_ptr());
        let weights = room.weights[blocks.clone()].as_ptr();
        let shrinks = room.shrinks[blocks].as_ptr();
        // SAFETY: the caller's promise; what is read next is only asked for.
        unsafe {
            let out = out.add(column);
            match self.element {
                KvElement::F16 => halves::values(from, dim, weights, shrinks, count, out, factors),
                KvElement::F32 => singles::values(from, dim, weights, shrinks, count, out, factors),
            }
        }
    }

    /// Of a block what each row sees.
    ///
    /// # Safety
    /// As for `add_values`; its elements are `E`s.
    #[inline(always)]
    unsafe fn add_values_seen<E: Element>(
        &self,
        rows: Range<usize>,
        block: usize,
        out: *mut f32,
        room: &Room,
    ) {
        // Only its values are read.
        let from = self.values[block];
        let values = Block::<E>::new(from, from, [from; 2], false, self.dim);
        let shrinks = room.shrinks[block].first_chunk().expect("twelve and more");
        let visible = self.visible(rows, block);
        let weights = &room.weights[block];
        // SAFETY: the caller's promise.
        unsafe { add_values_seen::<Avx512, _, ROWS>(&values, weights, &visible, *shrinks, out) };
    }
}

/// Of weights so far, relative to the largest scores among them.
struct Sums {
    relative_to: Sixteen,
    of_rows: Sixteen,
}

impl Sums {
    /// Adds them to those of the partitions before. What each row's sums of values are then to be multiplied with: those of the
    /// partitions before, and those of this one.
    #[inline(always)]
    fn add_to(&self, rows: Range<usize>, totals: &mut Softmaxes) -> [OfRows; 2] {
        let [before, before_sum] = totals.get_rows::<Sixteen>(rows.start);
        let together = self.relative_to.larger(before);
        let shrinks = exp_of_negatives([before.sub(together), self.relative_to.sub(together)]);
        let sum = self.of_rows.mul_add(shrinks[1], before_sum.mul(shrinks[0]));
        // Where nothing was seen, or only what is not a number, all stays as it was.
        // SAFETY: chosen where the processor has AVX-512.
        let sum = unsafe { _mm512_mask_mov_ps(before_sum.0, self.is_something(), sum.0) };
        totals.put_rows(rows, [together, Sixteen(sum)]);
        shrinks.map(|shrinks| {
            let mut of_rows = [0.0; 16];
            // SAFETY: sixteen values.
            unsafe { shrinks.store(of_rows.as_mut_ptr()) };
            of_rows
        })
    }

    /// The rows that have seen a number.
    #[inline(always)]
    fn is_something(&self) -> __mmask16 {
        // SAFETY: chosen where the processor has AVX-512.
        unsafe {
            let nothing = _mm512_set1_ps(NOTHING);
            _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(self.relative_to.0, nothing)
        }
    }

    /// Whether each of so many rows has.
    #[inline(always)]
    fn is_of_all(&self, rows: usize) -> bool {
        self.is_something().trailing_ones() as usize >= rows
    }

    /// Adds sums of values to those of the partitions before, as [`super::block::combine`] does.
    ///
    /// # Safety
    /// As for [`Stretch::add`].
    #[inline(always)]
    unsafe fn combine(
        &self,
        rows: usize,
        factors: &[OfRows; 2],
        part: *const f32,
        out: *mut f32,
        dim: usize,
    ) {
        for row in 0..rows {
            if self.is_something() & 1 << row == 0 {
                continue;
            }
            let [before, now] = factors.map(|of_rows| Sixteen::splat(of_rows[row]));
            for column in (row * dim..(row + 1) * dim).step_by(16) {
                // SAFETY: the caller's promise.
                unsafe {
                    let total = Sixteen::load(out.add(column)).mul(before);
                    let total = Sixteen::load(part.add(column)).mul_add(now, total);
                    total.store(out.add(column));
                }
            }
        }
    }
}

/// Makes weights of the scores of a block, the first `done` rows excepted which are made already.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn make_weights(done: usize, block: usize, room: &mut Room) {
    for row in done..ROWS {
        let largest = Sixteen::splat(room.largest[block + 1][row]);
        let weights = room.weights[block][row].as_mut_ptr();
        let eighths = room.eighths[block % 2][row].as_mut_ptr();
        // SAFETY: two registers of scores, and one of eight values.
        unsafe {
            let first = Sixteen::load(weights).sub(largest);
            let last = Sixteen::load(weights.add(16)).sub(largest);
            let [first, last] = exp_of_negatives([first, last]);
            first.store(weights);
            last.store(weights.add(16));
            // Not from memory: of registers just stored, the compiler moves halves value by value.
            let ([a, b], [c, d]) = (first.halves(), last.halves());
            a.add(b).add(c).add(d).store(eighths);
        }
    }
}

/// Adds up the weights of a block, and finds what sums shrink by before it is added: a block later than they are made, which they
/// would otherwise wait for.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_weights(sums: &mut Sums, block: usize, room: &mut Room) {
    // SAFETY: sixteen values.
    let largest = unsafe { Sixteen::load(room.largest[block + 1].as_ptr()) };
    let [shrink] = exp_of_negatives([sums.relative_to.sub(largest)]);
    // SAFETY: sixteen values.
    unsafe { shrink.store(room.shrinks[block].as_mut_ptr()) };
    sums.relative_to = largest;
    let weights = sum_of_each(&room.eighths[block % 2]);
    sums.of_rows = sums.of_rows.mul_add(shrink, weights);
}

/// The sum of each row's eighths; then four times 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn sum_of_each(eighths: &[[f32; 8]; ROWS]) -> Sixteen {
    // As `Lanes::sum_of_each` does: fours, then pairs, then lanes are added, and at every turn two registers become one.
    let mut four = [_mm512_setzero_ps(); 4];
    for i in 0..4 {
        // SAFETY: eight values each.
        let [a, b, c] = [0, 4, 8].map(|j| unsafe { _mm256_loadu_ps(eighths[i + j].as_ptr()) });
        let a = _mm512_castps_pd(_mm512_castps256_ps512(a));
        let ac = _mm512_castpd_ps(_mm512_insertf64x4::<1>(a, _mm256_castps_pd(c)));
        let b = _mm512_zextps256_ps512(b);
        let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(ac, b);
        four[i] = _mm512_add_ps(even, _mm512_shuffle_f32x4::<0b11_01_11_01>(ac, b));
    }
    let mut two = [_mm512_setzero_ps(); 2];
    for i in 0..2 {
        let (a, b) = (
            _mm512_castps_pd(four[2 * i]),
            _mm512_castps_pd(four[2 * i + 1]),
        );
        let even = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        two[i] = _mm512_add_ps(even, _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    let [a, b] = two;
    let even = _mm512_shuffle_ps::<0b10_00_10_00>(a, b);
    let all = _mm512_add_ps(even, _mm512_shuffle_ps::<0b11_01_11_01>(a, b));
    // Rows of the third four are between those of the first and the second.
    Sixteen(_mm512_shuffle_f32x4::<0b11_01_10_00>(all, all))
}

/// The largest scores with those of a block, where none is computed beside which they would be.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn add_largest(block: usize, room: &mut Room) {
    let largest = largest_of_each(&room.weights[block]);
    // SAFETY: sixteen values each.
    unsafe {
        let before = Sixteen::load(room.largest[block].as_ptr());
        let after = room.largest[block + 1].as_mut_ptr();
        largest.larger(before).store(after);
    }
}

/// The largest score of each row that is not NaN, -infinity if there is none; then four times that of no row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn largest_of_each(scores: &[[f32; TOKENS]; ROWS]) -> Sixteen {
    macro_rules! four {
        ($first:expr) => {{
            let mut rows = [_mm512_set1_ps(f32::NEG_INFINITY); 4];
            for i in 0..4 {
                for half in 0..2 {
                    let scores = &scores[$first + i][16 * half..16 * half + 16];
                    // SAFETY: 16 scores.
                    let score = unsafe { _mm512_loadu_ps(scores.as_ptr()) };
                    // In this order NaN loses.
                    rows[i] = _mm512_max_ps(score, rows[i]);
                }
            }
            across_four!(rows, _mm512_max_ps)
        }};
    }
    let (first, second, third) = (four!(0), four!(4), four!(8));
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    Sixteen(across_fours!([first, second, third, none], _mm512_max_ps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_asked_for_in_as_many_steps_as_there_are() {
        let bytes = [0u8; 3 * ALIGNMENT];
        for (blocks, steps) in [(0, 0), (1, 1), (3, 128), (16, 128), (16, 1), (15, 7)] {
            let ahead = (0..blocks).map(|_| bytes.as_ptr());
            let mut ahead = Ahead::new(ahead, bytes.len(), steps);
            for step in 0..steps {
                let asked = ahead.block * 3 + ahead.offset / ALIGNMENT;
                assert!(asked >= 3 * blocks * step / steps, "step {step} of {steps}");
                ahead.ask();
            }
            assert_eq!((ahead.block, ahead.offset), (blocks, 0), "{steps} steps");
        }
    }
}
