//! Owns the execution of one step: every thread walks all calls, phase by phase, and computes the items it gets to take.

use crate::context::Context;
use crate::executable::{CpuExecutable, ThreadScratch, rows_of};
use crate::kernels::attention::{Attention, QueryTile, Scratch};
use crate::kernels::rope::Rotation;
use crate::kernels::{elementwise, layer_norm, norm, rope, tanh};
use crate::kv::HeadOf;
use crate::phases::{Phases, Walk};
use crate::pool::{dealt, share};
use crate::prepared::PreparedPlan;
use crate::product::Product;
use crate::program::{Call, EmbedOf, Kernel, KeysAndValues, RopeKvWrite};
use crate::step::Tile;
use mettle_plan::{Expr, KernelCount, StepInput, WeightId};
use std::ops::Range;

/// Items of a phase for each thread: enough that one who is late leaves little undone, few enough to cost nothing.
pub(crate) const ITEMS_PER_THREAD: usize = 4;

/// A step under way. All threads share it; what they write is split by rows, columns or heads.
pub struct Run<'a> {
    pub(crate) cpu: &'a CpuExecutable,
    pub(crate) plan: &'a PreparedPlan,
    step: &'a StepInput,
    pub(crate) threads: usize,
}

/// What an attention computes: every KV head of every tile of queries.
#[derive(Clone, Copy)]
struct HeadsOfTiles<'a> {
    context: Context<'a>,
    tiles: &'a [Tile],
    kv_heads: usize,
}

impl<'a> HeadsOfTiles<'a> {
    fn count(&self) -> usize {
        self.tiles.len() * self.kv_heads
    }

    /// The tile and the KV head of a number below the count.
    fn at(&self, index: usize) -> (QueryTile<'a>, usize) {
        let tile = self.tiles[index / self.kv_heads];
        (self.context.tile(tile), index % self.kv_heads)
    }
}

/// Whether a thread took the first item of a call's last phase, and of what the call before it does along with it: it counts them.
struct Began {
    before: bool,
    own: bool,
}

impl Began {
    fn both(own: bool) -> Began {
        Began { before: own, own }
    }
}

impl<'a> Run<'a> {
    pub fn new(cpu: &'a CpuExecutable, step: &'a StepInput, threads: usize) -> Run<'a> {
        Run {
            cpu,
            plan: &cpu.plans[step.plan],
            step,
            threads,
        }
    }

    pub fn all_calls(&self, thread: usize, phases: &Phases) {
        // SAFETY: a step runs each thread number once, and steps do not overlap (`submit` has `&mut self`).
        let scratch = unsafe { self.cpu.threads[thread].get() };
        let mut walk = phases.walk(thread);
        let tokens = self.cpu.state.positions.len();
        self.rows(&mut walk, tokens, |rows| self.fill_angles(rows));
        let calls = self.plan.calls_for(self.step.output);
        // What the next call computes along with its own.
        let mut before = None;
        for (call, kernels) in calls.iter().zip(&self.plan.kernels) {
            if call.joins_next {
                before = Some((&call.kernel, kernels));
                continue;
            }
            let (before, more) = before.take().unzip();
            // SAFETY: a call is a phase or several, so all calls before it are finished. Inside a phase, items are
            // disjoint rows, columns or heads. Row counts are within the bounds that the arena was planned with
            // (`StepState::prepare` checked them).
            let began = unsafe { self.call(before, call, scratch, &mut walk) };
            if began.before {
                more.into_iter().flatten().for_each(KernelCount::add_one);
            }
            if began.own {
                kernels.iter().for_each(KernelCount::add_one);
            }
            if !call.taps.is_empty() {
                walk.phase(1, |_| self.keep_taps(call));
            }
        }
    }

    /// Items that `parts` parts of a phase's work are dealt out in.
    pub(crate) fn items(&self, parts: usize) -> usize {
        match self.threads {
            1 => parts.min(1),
            threads => parts.min(threads * ITEMS_PER_THREAD),
        }
    }

    /// A phase over rows. True for the thread that did the first of them.
    pub(crate) fn rows(
        &self,
        walk: &mut Walk<'_>,
        rows: usize,
        mut work: impl FnMut(Range<usize>),
    ) -> bool {
        let items = self.items(rows);
        walk.phase(items, |item| work(share(rows, item, items)))
    }

    /// A phase over rows, or over columns of the only one.
    pub(crate) fn cells(
        &self,
        walk: &mut Walk<'_>,
        rows: usize,
        width: usize,
        mut work: impl FnMut(usize, Range<usize>),
    ) -> bool {
        if rows == 1 {
            let items = self.threads.min(width);
            return walk.phase(items, |item| work(0, share(width, item, items)));
        }
        self.rows(walk, rows, |rows| {
            for row in rows {
                work(row, 0..width);
            }
        })
    }

    fn fill_angles(&self, tokens: Range<usize>) {
        let positions = &self.cpu.state.positions;
        for table in &self.plan.ropes {
            let angles = table.rows();
            for token in tokens.clone() {
                // SAFETY: each token's row is filled by one thread, in the phase before those that read it.
                let row = unsafe { angles.row_mut(token) };
                let (cosines, sines) = row.split_at_mut(table.rope.dims / 2);
                rope::fill_angles(&table.rope, positions[token], cosines, sines);
            }
        }
    }

    /// A call, and the one before it where that joins it.
    ///
    /// # Safety
    /// See `all_calls`.
    unsafe fn call(
        &self,
        before: Option<&Kernel>,
        call: &Call,
        scratch: &mut ThreadScratch,
        walk: &mut Walk<'_>,
    ) -> Began {
        let isa = self.cpu.isa;
        let rows = rows_of(call.rows, &self.cpu.state);
        let vector = |id: WeightId| self.plan.weights.vector(id);
        // SAFETY: for every row access below: see `all_calls`.
        let own = unsafe {
            match &call.kernel {
                Kernel::Embed {
                    of,
                    table,
                    out,
                    scale,
                } => {
                    let ids = match of {
                        EmbedOf::Tokens => &self.cpu.state.token_ids,
                        EmbedOf::Positions => &self.cpu.state.positions,
                    };
                    let table = &self.plan.weights.matrix(*table)[0];
                    self.rows(walk, rows, |rows| {
                        for row in rows {
                            let out = out.row_mut(row);
                            table.read_row(ids[row] as usize, out);
                            if *scale != 1.0 {
                                out.iter_mut().for_each(|o| *o *= scale);
                            }
                        }
                    })
                }
                Kernel::RmsNorm(op) => self.rows(walk, rows, |rows| {
                    for row in rows {
                        if let Some(add) = op.add {
                            norm::add(isa, op.x.row_mut(row), add.row(row));
                        }
                        self.norm(op, row, op.out.row_mut(row));
                    }
                }),
                Kernel::Linear {
                    x,
                    weight,
                    bias,
                    residual,
                    out,
                } => {
                    let bias = bias.map(vector);
                    let product = Product {
                        x: *x,
                        weight: *weight,
                        bias,
                        residual: *residual,
                        out: *out,
                        rows,
                        made_by: before,
                    };
                    self.linear(product, scratch, walk)
                }
                Kernel::LayerNorm {
                    x,
                    weight,
                    bias,
                    eps,
                    out,
                } => {
                    let (weight, bias) = (vector(*weight), bias.map(vector));
                    self.rows(walk, rows, |rows| {
                        for row in rows {
                            let out = out.row_mut(row);
                            layer_norm::layer_norm(isa, x.row(row), weight, bias, *eps, out);
                        }
                    })
                }
                Kernel::QkNorm {
                    x,
                    weight,
                    head_dim,
                    offset,
                    eps,
                } => {
                    let weight = weight.map(vector);
                    self.rows(walk, rows, |rows| {
                        for row in rows {
                            let x = x.row_mut(row);
                            norm::rms_norm_heads(isa, x, *head_dim, weight, *offset, *eps);
                        }
                    })
                }
                Kernel::RopeKvWrite(rotation) => self.rotate_rows(rotation, rows, walk),
                Kernel::Attention {
                    q,
                    out,
                    kv,
                    kv_heads,
                    head_dim,
                    scale,
                    window,
                    softcap,
                    sinks,
                    bias,
                } => {
                    let columns = q.width / kv_heads;
                    let heads = columns / head_dim;
                    let sinks = sinks.map(vector);
                    let bias = bias.map(|id| &self.plan.biases[&id]);
                    let source = self.context(*kv, walk);
                    let attention = |head: usize| Attention {
                        pool: source.pool(),
                        of: source.head(head),
                        q: q.columns(head * columns, columns),
                        out: out.columns(head * columns, columns),
                        head_dim: *head_dim,
                        scale: *scale,
                        causal: source.is_causal(),
                        window: *window,
                        softcap: *softcap,
                        sinks: sinks.map(|s| &s[head * heads..(head + 1) * heads]),
                        bias: bias.map(|bias| bias.rows(head * heads..(head + 1) * heads)),
                        rotation: None,
                    };
                    let rotation = match before {
                        Some(Kernel::RopeKvWrite(rotation)) => Some(rotation),
                        _ => None,
                    };
                    let heads = HeadsOfTiles {
                        context: source,
                        tiles: self.tiles(call),
                        kv_heads: *kv_heads,
                    };
                    return self.attend(attention, rotation, heads, scratch, walk);
                }
                Kernel::Gated(op) => self.gated(op, rows, walk),
                Kernel::Elementwise { expr, a, b, out } => {
                    let (expr, row_of_all) = match *expr {
                        Expr::ScaleBy(weight) => (Expr::Scale(vector(weight)[0]), None),
                        Expr::AddRow(weight) => (Expr::Add, Some(&vector(weight)[..out.width])),
                        expr => (expr, None),
                    };
                    self.rows(walk, rows, |rows| {
                        for row in rows {
                            let x = out.row_mut(row);
                            // The same columns, or columns apart.
                            if !a.same(out) {
                                x.copy_from_slice(a.row(row));
                            }
                            match row_of_all.or_else(|| b.map(|b| b.row(row))) {
                                Some(&[one]) if x.len() > 1 => {
                                    elementwise::apply_one(isa, expr, x, one)
                                }
                                b => elementwise::apply(isa, expr, x, b),
                            }
                        }
                    })
                }
                Kernel::MoeRoute {
                    logits,
                    route,
                    experts,
                    shares,
                } => self.rows(walk, rows, |rows| {
                    for row in rows {
                        let (logits, room) = (logits.row(row), &mut scratch.scores);
                        let room = &mut room[..logits.len()];
                        let (experts, shares) = (experts.row_mut(row), shares.row_mut(row));
                        route.run(isa, logits, room, experts, shares);
                    }
                }),
                Kernel::MoeExperts(op) => self.experts(op, rows, scratch, walk),
                Kernel::Softcap { x, cap } => self.cells(walk, rows, x.width, |row, columns| {
                    let x = x.columns(columns.start, columns.len());
                    tanh::softcap_row(isa, x.row_mut(row), *cap);
                }),
                Kernel::Gather { x, out } => self.rows(walk, rows, |rows| {
                    for row in rows {
                        let from = self.cpu.state.logit_rows[row] as usize;
                        out.row_mut(row).copy_from_slice(x.row(from));
                    }
                }),
            }
        };
        Began::both(own)
    }

    /// # Safety
    /// See `all_calls`.
    unsafe fn rotate_rows(&self, op: &RopeKvWrite, rows: usize, walk: &mut Walk<'_>) -> bool {
        self.rows(walk, rows, |rows| {
            for row in rows {
                // SAFETY: the row is this item's.
                unsafe {
                    let (q, k) = (op.q.row_mut(row), op.k.row_mut(row));
                    if let Some(rotation) = self.rotation(op, row) {
                        rotation.apply(self.cpu.isa, q, op.head_dim);
                        rotation.apply(self.cpu.isa, k, op.head_dim);
                    }
                    for head in 0..op.kv_heads {
                        let width = k.len() / op.kv_heads;
                        self.write_head(op, row, head, &k[head * width..(head + 1) * width]);
                    }
                }
            }
        })
    }

    /// How a row's queries and keys are rotated.
    fn rotation(&self, op: &RopeKvWrite, row: usize) -> Option<Rotation<'_>> {
        let table = &self.plan.ropes[op.rope?.0 as usize];
        // SAFETY: filled in the first phase of the step and not written since.
        let angles = unsafe { table.rows().row(row) };
        let (cosines, sines) = angles.split_at(table.rope.dims / 2);
        Some(Rotation {
            style: table.rope.style,
            from: op.rotate_from,
            cosines,
            sines,
        })
    }

    /// Rotates one head of a row's keys and writes it to the cache.
    ///
    /// # Safety
    /// As for `write_head`.
    unsafe fn write_token(&self, op: &RopeKvWrite, row: usize, head: usize, scratch: &mut Scratch) {
        if op.v.is_none() {
            return;
        }
        let width = op.k.width / op.kv_heads;
        let key = scratch.key(width);
        // SAFETY: the caller's promise.
        unsafe {
            key.copy_from_slice(op.k.columns(head * width, width).row(row));
            if let Some(rotation) = self.rotation(op, row) {
                rotation.apply(self.cpu.isa, key, op.head_dim);
            }
            self.write_head(op, row, head, key);
        }
    }

    /// Writes one head of a row to the cache. `key` is rotated.
    ///
    /// # Safety
    /// The row's values are finished, and nobody else touches this head's place in the cache.
    unsafe fn write_head(&self, op: &RopeKvWrite, row: usize, head: usize, key: &[f32]) {
        let Some(v) = op.v else {
            return;
        };
        let width = v.width / op.kv_heads;
        let (page, token) = self.cpu.state.slots[op.kv.group][row];
        let of = HeadOf { kv: op.kv, head };
        // SAFETY: the caller's promise; the slot was checked, and belongs to this row alone.
        unsafe {
            let value = v.columns(head * width, width).row(row);
            self.cpu.kv.write(of, page, token as usize, key, value)
        };
    }

    /// What the step's queries see. Rows that no cache holds are put in order first, in a phase of their own.
    ///
    /// # Safety
    /// See `all_calls`.
    unsafe fn context(&self, kv: KeysAndValues, walk: &mut Walk<'_>) -> Context<'a> {
        match kv {
            KeysAndValues::Paged(kv) => Context::Paged {
                pool: &self.cpu.kv,
                kv,
                table: &self.step.tables[kv.group],
            },
            KeysAndValues::Encoded(kv) => Context::Encoded {
                pool: &self.cpu.kv,
                kv,
                table: &self.step.tables[kv.group],
            },
            KeysAndValues::Rows { k, v } => {
                let blocks = self.cpu.row_blocks.as_ref();
                let blocks = blocks.expect("made for plans with such attention");
                let tiles = &self.cpu.state.tiles;
                self.rows(walk, tiles.len(), |range| {
                    for tile in &tiles[range] {
                        // SAFETY: the rows are finished; each tile is written by one thread.
                        unsafe { blocks.write(*tile, k, v) };
                    }
                });
                Context::Rows(blocks)
            }
        }
    }

    /// The queries that an attention computes. Of single tokens it is all: each is written to the cache where it is computed, wanted
    /// or not.
    fn tiles(&self, call: &Call) -> &'a [Tile] {
        let state = &self.cpu.state;
        match call.only_logit_rows && state.longest_tile > 1 {
            true => &state.logit_tiles,
            false => &state.tiles,
        }
    }

    /// An item is a head of a tile, the longest contexts first. Where there are only a few, it is a partition of one: there
    /// queries are rotated, and their own token is written to the cache, by whoever reads them.
    ///
    /// # Safety
    /// See `all_calls`.
    unsafe fn attend(
        &self,
        attention: impl Fn(usize) -> Attention<'a>,
        rotation: Option<&'a RopeKvWrite>,
        heads: HeadsOfTiles<'a>,
        scratch: &mut ThreadScratch,
        walk: &mut Walk<'_>,
    ) -> Began {
        let (isa, state, scratch) = (self.cpu.isa, &self.cpu.state, &mut scratch.attention);
        let count = heads.count();
        let of = |index: usize| {
            let (tile, head) = heads.at(index);
            (tile, attention(head))
        };
        if self.threads == 1 || state.longest_tile > 1 || count > self.cpu.parts.items {
            let rotated = rotation.is_some_and(|rotation| {
                // SAFETY: the caller's promise.
                unsafe { self.rotate_rows(rotation, state.positions.len(), walk) }
            });
            let own = walk.phase(count, |item| {
                // Later tiles of a prompt have more context. Single tokens are of many answers, in no order.
                let place = match state.longest_tile {
                    1 => item,
                    _ => dealt(count, item, self.threads),
                };
                let (tile, attention) = of(count - 1 - place);
                // SAFETY: each (tile, head) is computed by one thread into its own columns and rows.
                unsafe { attention.run(isa, tile, scratch) };
            });
            // Where no row is wanted nobody attends, and keys and values are written all the same.
            return Began {
                before: rotated,
                own,
            };
        }
        let partitions = |index: usize| {
            let (tile, attention) = of(index);
            attention.partitions(tile)
        };
        let all: usize = (0..count).map(|index| partitions(index).len()).sum();
        let parts = &self.cpu.parts;
        let own = walk.phase(all, |item| {
            let (mut index, mut number) = (0, item);
            while number >= partitions(index).len() {
                number -= partitions(index).len();
                index += 1;
            }
            let (tile, mut attention) = of(index);
            let partitions = attention.partitions(tile);
            // SAFETY: each part is computed by one thread, into its own place. The tile's only token is in the last one,
            // and nobody else reads it. All parts are there when the last one is.
            unsafe {
                if let Some(op) = rotation {
                    attention.rotation = self.rotation(op, tile.row);
                    if number + 1 == partitions.len() {
                        self.write_token(op, tile.row, heads.at(index).1, scratch);
                    }
                }
                let partition = partitions.start + number;
                attention.run_partition(isa, tile, partition, scratch, parts.at(index, number));
                if parts.is_last(index, partitions.len()) {
                    attention.finish(isa, tile, scratch, parts.at(index, 0), parts.stride);
                }
            }
        });
        Began::both(own)
    }

    fn keep_taps(&self, call: &Call) {
        for (index, slice, dim) in &call.taps {
            let mut kept = self.cpu.taps[*index]
                .1
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            kept.clear();
            for row in 0..rows_of(*dim, &self.cpu.state) {
                // SAFETY: the only item of its phase: nobody writes.
                kept.extend_from_slice(unsafe { slice.row(row) });
            }
        }
    }
}
