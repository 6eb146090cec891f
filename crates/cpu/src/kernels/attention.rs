//! Owns attention of a few queries over one sequence's pages, for the query heads that share a KV head. Without a cache the
//! step's own rows are pages too (`row_blocks`), and every query sees them all.
//!
//! Per query and head: the context is cut at multiples of 256 positions into partitions, these at multiples of 32 into
//! blocks. Inside a partition blocks are added by online softmax, first to last; partitions are then combined in order.
//! The cuts depend on absolute positions only, so chunks, batches and threads cannot change the result.

mod bias;
mod block;
mod sight;
mod softmaxes;
#[cfg(target_arch = "x86_64")]
mod twelve;

pub use self::bias::{BiasRows, BiasTable};

use self::bias::NO_BIAS;
use self::block::{Block, Halves, Singles, TOGETHER, Widened, add_block, combine};
use self::sight::Sight;
use self::softmaxes::{Softmax, Softmaxes};
use crate::isa::{Isa, for_each_isa};
use crate::kernels::rope::Rotation;
use crate::kv::{HeadOf, KvPool, TOKENS};
use crate::lanes::{Floats, Lanes};
use crate::memory::{AlignedSingles, Rows};
use mettle_plan::{BlockId, KvElement};
use std::ops::Range;

/// Tokens in a partition: the unit that threads may share a long context by.
pub const PARTITION: usize = 256;

/// Rows of queries that share each load of a key or value.
const ROWS: usize = 3;

/// Query tokens that are computed together and share each block they read.
pub const TILE: usize = 64;

/// The same where few tokens are computed, so that all threads have some.
pub const SMALL_TILE: usize = 16;

/// Neighbouring tokens of one sequence, and where their context lies.
#[derive(Clone, Copy)]
pub struct QueryTile<'a> {
    /// Row of the first query in the step, and its position in the sequence.
    pub row: usize,
    pub position: usize,
    pub tokens: usize,
    /// One past the last position that any of them sees.
    pub context: usize,
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
    /// A query sees nothing behind its own position; else the whole context.
    pub causal: bool,
    /// Tokens that a query sees, its own included.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// One logit for each of these query heads, which takes part in the softmax and adds nothing.
    pub sinks: Option<&'a [f32]>,
    /// Added to the scores, by the distance of a token from the query.
    pub bias: Option<BiasRows<'a>>,
    /// How queries are still to be rotated. Tiles have one token then.
    pub rotation: Option<Rotation<'a>>,
}

/// One thread's working memory.
pub struct Scratch {
    keys: AlignedSingles,
    values: AlignedSingles,
    queries: AlignedSingles,
    /// Of the current partition, and of those before it.
    partition: Softmaxes,
    total: Softmaxes,
    partition_out: AlignedSingles,
    total_out: AlignedSingles,
    #[cfg(target_arch = "x86_64")]
    twelve: Box<twelve::Room>,
    /// Whether widening takes no time beside products: then halves are not widened before.
    #[cfg(target_arch = "x86_64")]
    multiplies_halves: bool,
}

impl Scratch {
    pub fn new(head_dim: usize, heads_per_kv_head: usize) -> Scratch {
        // Rows that go through together may be more than there are.
        let rows = TILE * heads_per_kv_head + TOGETHER;
        Scratch {
            keys: AlignedSingles::zeroed(PARTITION * head_dim),
            values: AlignedSingles::zeroed(PARTITION * head_dim),
            queries: AlignedSingles::zeroed(rows * head_dim),
            partition: Softmaxes::new(rows),
            total: Softmaxes::new(rows),
            partition_out: AlignedSingles::zeroed(rows * head_dim),
            total_out: AlignedSingles::zeroed(rows * head_dim),
            #[cfg(target_arch = "x86_64")]
            twelve: Box::new(twelve::Room::EMPTY),
            #[cfg(target_arch = "x86_64")]
            multiplies_halves: crate::isa::adds_beside_products(),
        }
    }

    pub fn bytes(&self) -> usize {
        let values = [
            &self.keys,
            &self.values,
            &self.queries,
            &self.partition_out,
            &self.total_out,
        ];
        let values: usize = values.iter().map(|part| part.len() * 4).sum();
        #[cfg(target_arch = "x86_64")]
        let values = values + size_of_val(&*self.twelve);
        values + self.partition.bytes() + self.total.bytes()
    }

    /// Room for a key, between two tiles.
    pub fn key(&mut self, width: usize) -> &mut [f32] {
        &mut self.keys[..width]
    }

    fn start_partition(&mut self, rows: usize, head_dim: usize) {
        self.partition.clear(rows);
        self.partition_out[..rows * head_dim].fill(0.0);
    }

    fn start_total(&mut self, rows: usize, head_dim: usize) {
        self.total.clear(rows);
        self.total_out[..rows * head_dim].fill(0.0);
    }
}

impl Attention<'_> {
    /// # Safety
    /// The tile's rows of q and out exist, its pages hold the keys and values of all positions of its context, nobody
    /// writes those or touches these columns of `out` meanwhile.
    pub unsafe fn run(&self, isa: Isa, tile: QueryTile<'_>, scratch: &mut Scratch) {
        // SAFETY: the caller's promise.
        unsafe {
            self.scale_queries(isa, tile, scratch);
            scratch.start_total(self.rows(tile), self.head_dim);
            for partition in self.partitions(tile) {
                self.add_partition(isa, tile, partition, scratch);
            }
            self.write(isa, tile, scratch);
        }
    }

    /// The keys and values of the block that a position lies in.
    fn block_at(&self, tile: QueryTile<'_>, position: usize) -> (*const u8, *const u8) {
        let tokens_per_page = self.pool.tokens_per_page(self.of.kv.group);
        let page = tile.blocks[position / tokens_per_page - tile.first_page];
        let block = position % tokens_per_page / TOKENS;
        self.pool.block_of(self.of, page, block)
    }

    /// The partitions that some query of the tile sees a token of.
    pub fn partitions(&self, tile: QueryTile<'_>) -> Range<usize> {
        self.first_seen(tile.position) / PARTITION..tile.context.div_ceil(PARTITION)
    }

    /// The first position that the query at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        match self.window {
            Some(window) => (position + 1).saturating_sub(window),
            None => 0,
        }
    }

    /// Computes one partition of the context into `part`, for [`Attention::finish`].
    ///
    /// # Safety
    /// As for `run`; `part` has room for the tile's rows, and is this thread's.
    pub unsafe fn run_partition(
        &self,
        isa: Isa,
        tile: QueryTile<'_>,
        partition: usize,
        scratch: &mut Scratch,
        part: *mut f32,
    ) {
        let (rows, dim) = (self.rows(tile), self.head_dim);
        // SAFETY: the caller's promise.
        unsafe {
            self.scale_queries(isa, tile, scratch);
            self.partition(isa, tile, self.part(tile, partition), scratch);
            for row in 0..rows {
                let to = part.add(row * part_width(dim));
                let Softmax { largest, sum } = scratch.partition.get(row);
                *to = largest;
                *to.add(1) = sum;
                let from = scratch.partition_out.as_ptr().add(row * dim);
                std::ptr::copy_nonoverlapping(from, to.add(2), dim);
            }
        }
    }

    /// Puts the partitions of a tile together, first to last.
    ///
    /// # Safety
    /// As for `run`; `parts` holds what `run_partition` wrote for each of the tile's partitions, `stride` apart.
    pub unsafe fn finish(
        &self,
        isa: Isa,
        tile: QueryTile<'_>,
        scratch: &mut Scratch,
        parts: *const f32,
        stride: usize,
    ) {
        let (rows, dim) = (self.rows(tile), self.head_dim);
        scratch.start_total(rows, dim);
        for part in 0..self.partitions(tile).len() {
            for row in 0..rows {
                let out = &mut scratch.partition_out[row * dim..(row + 1) * dim];
                // SAFETY: the caller's promise.
                let softmax = unsafe {
                    let from = parts.add(part * stride + row * part_width(dim));
                    out.copy_from_slice(std::slice::from_raw_parts(from.add(2), dim));
                    let (largest, sum) = (*from, *from.add(1));
                    Softmax { largest, sum }
                };
                scratch.partition.put(row, softmax);
            }
            combine_rows(isa, dim, 0..rows, scratch);
        }
        // SAFETY: the caller's promise.
        unsafe { self.write(isa, tile, scratch) }
    }

    /// Rows of queries: every head of every token.
    fn rows(&self, tile: QueryTile<'_>) -> usize {
        tile.tokens * (self.q.width / self.head_dim)
    }

    /// # Safety
    /// As for `run`.
    unsafe fn scale_queries(&self, isa: Isa, tile: QueryTile<'_>, scratch: &mut Scratch) {
        let width = self.q.width;
        assert!(self.rotation.is_none() || tile.tokens == 1);
        for token in 0..tile.tokens {
            // SAFETY: the caller's promise.
            let q = unsafe { self.q.row(tile.row + token) };
            let scaled = &mut scratch.queries[token * width..(token + 1) * width];
            scaled.copy_from_slice(q);
            if let Some(rotation) = self.rotation {
                rotation.apply(isa, scaled, self.head_dim);
            }
            for i in 0..width {
                scaled[i] *= self.scale;
            }
        }
    }

    /// # Safety
    /// As for `run`.
    unsafe fn write(&self, isa: Isa, tile: QueryTile<'_>, scratch: &mut Scratch) {
        let dim = self.head_dim;
        let heads = self.q.width / dim;
        if let Some(sinks) = self.sinks {
            // A sink is a partition of one token whose value is 0.
            let rows = self.rows(tile);
            scratch.partition_out[..rows * dim].fill(0.0);
            for row in 0..rows {
                let largest = sinks[row % heads];
                scratch.partition.put(row, Softmax { largest, sum: 1.0 });
            }
            combine_rows(isa, dim, 0..rows, scratch);
        }
        for token in 0..tile.tokens {
            // SAFETY: the caller's promise.
            let out = unsafe { self.out.row_mut(tile.row + token) };
            for head in 0..heads {
                let row = token * heads + head;
                let inverse = 1.0 / scratch.total.get(row).sum;
                let from = &scratch.total_out[row * dim..(row + 1) * dim];
                let out = &mut out[head * dim..(head + 1) * dim];
                for i in 0..dim {
                    out[i] = from[i] * inverse;
                }
            }
        }
    }

    /// The positions of a partition that some query of the tile sees, from the first block on.
    fn part(&self, tile: QueryTile<'_>, partition: usize) -> Range<usize> {
        let start = partition * PARTITION;
        let first_block = self.first_seen(tile.position) / TOKENS * TOKENS;
        start.max(first_block)..tile.context.min(start + PARTITION)
    }

    fn sight(&self, tile: QueryTile<'_>) -> Sight {
        Sight {
            position: tile.position,
            heads: self.q.width / self.head_dim,
            whole_context: (!self.causal).then_some(tile.context),
            window: self.window.unwrap_or(usize::MAX),
        }
    }

    /// Adds a partition of all rows to those before it.
    ///
    /// # Safety
    /// As for `run`, and the queries are scaled.
    unsafe fn add_partition(
        &self,
        isa: Isa,
        tile: QueryTile<'_>,
        partition: usize,
        scratch: &mut Scratch,
    ) {
        let (rows, positions) = (self.rows(tile), self.part(tile, partition));
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if isa.is_wide() && twelve::pays(tile.tokens, rows, self.head_dim) {
                return self.by_twelves(isa, tile, positions, scratch);
            }
            self.partition(isa, tile, positions, scratch);
        }
        combine_rows(isa, self.head_dim, 0..rows, scratch);
    }

    /// The blocks at some positions of a partition, for all rows, into the scratch memory.
    ///
    /// # Safety
    /// As for `add_partition`.
    unsafe fn partition(
        &self,
        isa: Isa,
        tile: QueryTile<'_>,
        positions: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let (rows, dim, sight) = (self.rows(tile), self.head_dim, self.sight(tile));
        scratch.start_partition(rows, dim);
        for position in positions.step_by(TOKENS) {
            let (keys, values) = self.block_at(tile, position);
            let next = match position + TOKENS < tile.context {
                true => self.block_at(tile, position + TOKENS).into(),
                false => [keys, values],
            };
            let walk = Walk {
                keys,
                values,
                next,
                asks_near: self.pool.asks_near,
                block: position,
                sight,
                rows,
                dim,
                softcap: self.softcap,
                bias: self.bias,
            };
            match self.pool.element(self.of.kv.group) {
                KvElement::F32 => singles(isa, walk, scratch),
                KvElement::F16 => halves(isa, walk, scratch),
            }
        }
    }

    /// The blocks of the partition from `start` on, which is computed next, to be asked for in so many steps.
    #[cfg(target_arch = "x86_64")]
    fn blocks_ahead(&self, tile: QueryTile<'_>, start: usize, steps: usize) -> twelve::Ahead {
        let positions = (start..tile.context.min(start + PARTITION)).step_by(TOKENS);
        let blocks = positions.flat_map(|position| {
            let (keys, values) = self.block_at(tile, position);
            [keys, values]
        });
        let bytes = TOKENS * self.head_dim * self.pool.element(self.of.kv.group).bytes();
        twelve::Ahead::new(blocks, bytes, steps)
    }

    /// The same twelve rows after twelve, added to the partitions before.
    ///
    /// # Safety
    /// As for `add_partition`; the instruction set is wide.
    #[cfg(target_arch = "x86_64")]
    unsafe fn by_twelves(
        &self,
        isa: Isa,
        tile: QueryTile<'_>,
        positions: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let (rows, dim, sight) = (self.rows(tile), self.head_dim, self.sight(tile));
        let count = positions.len().div_ceil(TOKENS);
        let steps = rows.div_ceil(twelve::ROWS) * count;
        let mut stretch = twelve::Stretch {
            keys: [std::ptr::null(); twelve::BLOCKS],
            values: [std::ptr::null(); twelve::BLOCKS],
            element: self.pool.element(self.of.kv.group),
            count,
            start: positions.start,
            dim,
            sight,
            softcap: self.softcap,
            bias: self.bias,
            ahead: self.blocks_ahead(tile, positions.end, steps),
        };
        for (i, position) in positions.clone().step_by(TOKENS).enumerate() {
            (stretch.keys[i], stretch.values[i]) = self.block_at(tile, position);
        }
        if stretch.element == KvElement::F16 && !scratch.multiplies_halves {
            stretch.element = KvElement::F32;
            for (blocks, room) in [
                (&mut stretch.keys, &mut scratch.keys),
                (&mut stretch.values, &mut scratch.values),
            ] {
                let rooms = room.chunks_exact_mut(TOKENS * dim);
                for (block, room) in blocks[..stretch.count].iter_mut().zip(rooms) {
                    widened(isa, Stored(*block), room);
                    *block = room.as_ptr().cast();
                }
            }
        }
        for first in (0..rows).step_by(twelve::ROWS) {
            let group = first..rows.min(first + twelve::ROWS);
            let all = first * dim..(first + twelve::ROWS) * dim;
            let queries = scratch.queries[all.clone()].as_ptr();
            let part = scratch.partition_out[..twelve::ROWS * dim].as_mut_ptr();
            let out = scratch.total_out[all].as_mut_ptr();
            let (totals, room) = (&mut scratch.total, &mut scratch.twelve);
            // SAFETY: twelve rows of each, of this thread; the caller's promise.
            unsafe { stretch.add(group, queries, part, totals, out, room) };
        }
    }
}

/// Values that one row of a partition takes: its softmax, then its sums.
pub fn part_width(head_dim: usize) -> usize {
    head_dim + 2
}

/// One block of the context for all rows of a tile.
#[derive(Clone, Copy)]
struct Walk<'a> {
    keys: *const u8,
    values: *const u8,
    next: [*const u8; 2],
    asks_near: bool,
    /// Position of the block's first token.
    block: usize,
    sight: Sight,
    rows: usize,
    dim: usize,
    softcap: Option<f32>,
    bias: Option<BiasRows<'a>>,
}

for_each_isa! {
    fn singles<L>(walk: Walk<'_>, scratch: &mut Scratch) {
        let block = Block::<Singles>::new(walk.keys, walk.values, walk.next, walk.asks_near, walk.dim);
        all_rows::<L, _>(walk, block, scratch);
    }
}

for_each_isa! {
    fn halves<L>(walk: Walk<'_>, scratch: &mut Scratch) {
        // Rows that share every load widen what they load. For more of them the block is widened once, into memory, unless
        // widening costs nothing beside the products.
        if walk.rows <= ROWS || L::ADDS_THREE_ROWS {
            let block =
                Block::<Halves>::new(walk.keys, walk.values, walk.next, walk.asks_near, walk.dim);
            all_rows::<L, _>(walk, block, scratch);
            return;
        }
        let count = TOKENS * walk.dim;
        assert!(scratch.keys.len() >= count && scratch.values.len() >= count);
        // SAFETY: both have `count` elements, a multiple of 32.
        unsafe {
            widen::<L::Wide>(walk.keys.cast(), &mut scratch.keys[..count]);
            widen::<L::Wide>(walk.values.cast(), &mut scratch.values[..count]);
        }
        let (keys, values) = (scratch.keys.as_ptr().cast(), scratch.values.as_ptr().cast());
        let block = Block::<Widened>::new(keys, values, [keys, values], false, walk.dim);
        all_rows::<L, _>(walk, block, scratch);
    }
}

/// A block's keys, or its values: `dim` x 32 halves, of which whoever makes one says that they are there.
#[cfg(target_arch = "x86_64")]
struct Stored(*const u8);

for_each_isa! {
    /// All elements, as singles.
    #[cfg(target_arch = "x86_64")]
    fn widened<L>(block: Stored, singles: &mut [f32]) {
        // SAFETY: a block has as many elements, a multiple of 32.
        unsafe { widen::<L::Wide>(block.0.cast(), singles) };
    }
}

/// # Safety
/// There are as many halves as `singles`, a multiple of 32.
#[inline(always)]
unsafe fn widen<F: Floats>(halves: *const u16, singles: &mut [f32]) {
    for at in (0..singles.len()).step_by(F::WIDTH) {
        // SAFETY: the caller's promise.
        unsafe { F::load_halves(halves.add(at)).store(singles.as_mut_ptr().add(at)) };
    }
}

#[inline(always)]
fn all_rows<L: Lanes, E: block::Element>(walk: Walk<'_>, block: Block<E>, scratch: &mut Scratch) {
    let dim = walk.dim;
    let Range {
        start: mut row,
        end: rows,
    } = walk.sight.rows(walk.block, walk.rows);
    assert!(scratch.queries.len() >= rows * dim && scratch.partition_out.len() >= rows * dim);
    let sees_all = row < rows && walk.sight.sees_all(row..rows, walk.block);
    macro_rules! rows {
        ($most:expr) => {{
            let count = $most.min(rows - row);
            let mut visible = [const { 0..TOKENS }; $most];
            if !sees_all {
                for i in 0..count {
                    visible[i] = walk.sight.visible(row + i, walk.block);
                }
            }
            let mut biases = [&NO_BIAS; $most];
            let mut biased = 0;
            if let Some(bias) = walk.bias {
                for i in 0..count {
                    let (head, query) = walk.sight.query(row + i);
                    biases[i] = bias.of_block(head, query, walk.block);
                }
                biased = count;
            }
            // SAFETY: the rows' queries and sums were checked to exist; blocks hold `dim` x 32 elements.
            unsafe {
                add_block::<L, E, { $most }>(
                    &block,
                    scratch.queries.as_ptr().add(row * dim),
                    &visible[..count],
                    &biases[..biased],
                    walk.softcap,
                    &mut scratch.partition,
                    row..row + count,
                    scratch.partition_out.as_mut_ptr().add(row * dim),
                );
            }
            count
        }};
    }
    while row + ROWS < rows {
        row += rows!(TOGETHER);
    }
    // One token's, as a rule.
    if row < rows {
        rows!(ROWS);
    }
}

for_each_isa! {
    /// Adds a partition to those before it, for some rows.
    fn combine_rows<L>(dim: usize, rows: Range<usize>, scratch: &mut Scratch) {
        let (total, total_out) = (&mut scratch.total, &mut scratch.total_out);
        let (part, part_out) = (&scratch.partition, &scratch.partition_out);
        for first in rows.clone().step_by(8) {
            let eight = first..rows.end.min(first + 8);
            combine::<L>(eight, dim, total, total_out, part, part_out);
        }
    }
}

#[cfg(test)]
mod tests;
