//! Owns the execution of one step: every thread walks all calls, takes its share of each, and meets the others at the
//! barriers that the plan's hazards ask for.

use crate::executable::{CpuExecutable, OWN_ROWS, ThreadScratch, rows_of};
use crate::kernels::activations::QuantizedRows;
use crate::kernels::attention::{Attention, PARTITION, QueryTile};
use crate::kernels::linear::{Input, Linear};
use crate::kernels::{gated, norm, rope};
use crate::kv::HeadOf;
use crate::memory::Rows;
use crate::pool::{Barrier, share};
use crate::program::{Call, Kernel};
use mettle_plan::{KernelCount, KvLayer, RopeId, StepInput, WeightId};

/// A step under way. All threads share it; what they write is split by rows, columns or heads.
pub struct Run<'a> {
    cpu: &'a CpuExecutable,
    step: &'a StepInput,
    threads: usize,
}

impl<'a> Run<'a> {
    pub fn new(cpu: &'a CpuExecutable, step: &'a StepInput, threads: usize) -> Run<'a> {
        Run { cpu, step, threads }
    }

    pub fn all_calls(&self, thread: usize, barrier: &Barrier) {
        // SAFETY: a step runs each thread number once, and steps do not overlap (`submit` has `&mut self`).
        let scratch = unsafe { self.cpu.threads[thread].get() };
        self.fill_angles(thread);
        barrier.wait();
        let calls = self.cpu.calls_for(self.step.output);
        for (call, kernels) in calls.iter().zip(&self.cpu.kernels) {
            if call.barrier {
                barrier.wait();
            }
            // SAFETY: the barriers before this call are those that `hazards` asks for: no unfinished call writes what
            // this one reads or touches what it writes. Inside the call, threads take disjoint shares. Row counts are
            // within the bounds that the arena was planned with (`StepState::prepare` checked them).
            unsafe { self.call(call, thread, scratch, barrier) };
            if thread == 0 && rows_of(call.rows, &self.cpu.state) > 0 {
                kernels.iter().for_each(KernelCount::add_one);
            }
            if !call.taps.is_empty() {
                barrier.wait();
                if thread == 0 {
                    self.keep_taps(call);
                }
                barrier.wait();
            }
        }
    }

    fn my_rows(&self, rows: usize, thread: usize) -> std::ops::Range<usize> {
        share(rows, thread, self.threads)
    }

    fn fill_angles(&self, thread: usize) {
        let positions = &self.cpu.state.positions;
        for table in &self.cpu.ropes {
            let angles = table.rows();
            for token in self.my_rows(positions.len(), thread) {
                // SAFETY: each token's row is filled by one thread, before the barrier that lets others read it.
                let row = unsafe { angles.row_mut(token) };
                let (cosines, sines) = row.split_at_mut(table.rope.dims / 2);
                rope::fill_angles(&table.rope, positions[token], cosines, sines);
            }
        }
    }

    /// # Safety
    /// See `all_calls`.
    unsafe fn call(
        &self,
        call: &Call,
        thread: usize,
        scratch: &mut ThreadScratch,
        barrier: &Barrier,
    ) {
        let isa = self.cpu.isa;
        let rows = rows_of(call.rows, &self.cpu.state);
        let mine = self.my_rows(rows, thread);
        let vector = |id: WeightId| self.cpu.weights.vector(id);
        // SAFETY: for every row access below: see `all_calls`.
        unsafe {
            match &call.kernel {
                Kernel::Embed { table, out, scale } => {
                    let table = &self.cpu.weights.matrix(*table)[0];
                    for row in mine {
                        let out = out.row_mut(row);
                        table.read_row(self.cpu.state.token_ids[row] as usize, out);
                        if *scale != 1.0 {
                            out.iter_mut().for_each(|o| *o *= scale);
                        }
                    }
                }
                Kernel::RmsNorm {
                    x,
                    add,
                    weight,
                    offset,
                    eps,
                    out,
                } => {
                    let weight = weight.map(vector);
                    for row in mine {
                        if let Some(add) = add {
                            norm::add(isa, x.row_mut(row), add.row(row));
                        }
                        norm::rms_norm(isa, x.row(row), weight, *offset, *eps, out.row_mut(row));
                    }
                }
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
                    };
                    self.linear(product, thread, scratch, barrier);
                }
                Kernel::QkNorm {
                    x,
                    weight,
                    head_dim,
                    offset,
                    eps,
                } => {
                    for row in mine {
                        let x = x.row_mut(row);
                        norm::rms_norm_heads(isa, x, *head_dim, vector(*weight), *offset, *eps);
                    }
                }
                Kernel::RopeKvWrite {
                    q,
                    k,
                    v,
                    rope,
                    head_dim,
                    rotate_from,
                    kv_heads,
                    kv,
                } => {
                    for row in mine {
                        let (q, k) = (q.row_mut(row), k.row_mut(row));
                        if let Some(rope) = rope {
                            self.rotate(*rope, row, q, *head_dim, *rotate_from);
                            self.rotate(*rope, row, k, *head_dim, *rotate_from);
                        }
                        self.write_kv(*kv, *kv_heads, row, k, v.row(row));
                    }
                }
                Kernel::Attention {
                    q,
                    out,
                    kv,
                    kv_heads,
                    head_dim,
                    scale,
                } => {
                    let columns = q.width / kv_heads;
                    let attention = |head: usize| Attention {
                        pool: &self.cpu.kv,
                        of: HeadOf { kv: *kv, head },
                        q: q.columns(head * columns, columns),
                        out: out.columns(head * columns, columns),
                        head_dim: *head_dim,
                        scale: *scale,
                    };
                    self.attend(attention, kv.group, *kv_heads, thread, scratch, barrier);
                }
                Kernel::SiluMul { gate, up, out } => {
                    if rows == 1 {
                        let mine = share(out.width, thread, self.threads);
                        let (start, width) = (mine.start, mine.len());
                        gated::silu_mul(
                            isa,
                            gate.columns(start, width).row(0),
                            up.columns(start, width).row(0),
                            out.columns(start, width).row_mut(0),
                        );
                    } else {
                        for row in mine {
                            gated::silu_mul(isa, gate.row(row), up.row(row), out.row_mut(row));
                        }
                    }
                }
                Kernel::Add { a, b, out } => {
                    for row in mine {
                        // `a` and `out` may be the same columns, so no two borrows of them at once.
                        let a = a.row(row);
                        if std::ptr::eq(a.as_ptr(), out.row(row).as_ptr()) {
                            norm::add(isa, out.row_mut(row), b.row(row));
                        } else {
                            let out = out.row_mut(row);
                            out.copy_from_slice(a);
                            norm::add(isa, out, b.row(row));
                        }
                    }
                }
                Kernel::Gather { x, out } => {
                    for row in mine {
                        let from = self.cpu.state.logit_rows[row] as usize;
                        out.row_mut(row).copy_from_slice(x.row(from));
                    }
                }
            }
        }
    }

    /// # Safety
    /// See `all_calls`.
    unsafe fn linear(
        &self,
        product: Product<'_>,
        thread: usize,
        scratch: &mut ThreadScratch,
        barrier: &Barrier,
    ) {
        let parts = self.cpu.weights.matrix(product.weight);
        let quantized = parts.iter().any(|p| p.dtype.is_quantized());
        let shared = quantized && product.rows > OWN_ROWS;
        let quantize = |room: &QuantizedRows, rows: std::ops::Range<usize>| {
            for row in rows {
                // SAFETY: the input is finished; `room`'s row is this thread's.
                unsafe { room.quantize(self.cpu.isa, row, product.x.row(row)) };
            }
        };
        if shared {
            // An earlier product may still read the shared rows.
            barrier.wait();
            quantize(&self.cpu.quantized, self.my_rows(product.rows, thread));
            barrier.wait();
        } else if quantized {
            quantize(&scratch.quantized, 0..product.rows);
        }
        let quantized = if shared {
            &self.cpu.quantized
        } else {
            &scratch.quantized
        };
        let panels: usize = parts.iter().map(|p| p.panels()).sum();
        let mine = share(panels, thread, self.threads);
        let (mut first_panel, mut first_column) = (0, 0);
        for part in parts {
            let end = first_panel + part.panels();
            let (from, to) = (mine.start.max(first_panel), mine.end.min(end));
            if from < to {
                let columns = |rows: Rows| rows.columns(first_column, part.rows);
                let linear = Linear {
                    weights: part,
                    input: match part.dtype.is_quantized() {
                        true => Input::Quantized(quantized),
                        false => Input::Dense(product.x),
                    },
                    bias: product
                        .bias
                        .map(|b| &b[first_column..first_column + part.rows]),
                    residual: product.residual.map(columns),
                    out: columns(product.out),
                    rows: product.rows,
                };
                // SAFETY: the panels of each thread are its own columns of the output; see `all_calls`.
                unsafe {
                    linear.run(
                        self.cpu.isa,
                        from - first_panel..to - first_panel,
                        &mut scratch.linear,
                    )
                };
            }
            first_panel = end;
            first_column += part.rows;
        }
    }

    fn rotate(&self, id: RopeId, row: usize, x: &mut [f32], head_dim: usize, from: usize) {
        let table = &self.cpu.ropes[id.0 as usize];
        // SAFETY: filled before the first barrier of the step and not written since.
        let angles = unsafe { table.rows().row(row) };
        let (cosines, sines) = angles.split_at(table.rope.dims / 2);
        rope::rotate(
            self.cpu.isa,
            table.rope.style,
            x,
            head_dim,
            from,
            cosines,
            sines,
        );
    }

    fn write_kv(&self, kv: KvLayer, heads: usize, row: usize, k: &[f32], v: &[f32]) {
        let (page, token) = self.cpu.state.slots[kv.group][row];
        let (k_width, v_width) = (k.len() / heads, v.len() / heads);
        for head in 0..heads {
            let key = &k[head * k_width..(head + 1) * k_width];
            let value = &v[head * v_width..(head + 1) * v_width];
            // SAFETY: the slot was checked, and belongs to this row alone.
            unsafe {
                self.cpu
                    .kv
                    .write(HeadOf { kv, head }, page, token as usize, key, value)
            };
        }
    }

    /// Tiles and heads are dealt out in turn: later tiles of a prompt have more context, so each thread gets its part
    /// of the long ones. Where there are only a few, threads share each one's context.
    ///
    /// # Safety
    /// See `all_calls`.
    unsafe fn attend(
        &self,
        attention: impl Fn(usize) -> Attention<'a>,
        group: usize,
        kv_heads: usize,
        thread: usize,
        scratch: &mut ThreadScratch,
        barrier: &Barrier,
    ) {
        let state = &self.cpu.state;
        let items = state.tiles.len() * kv_heads;
        if self.threads == 1 || state.longest_tile > 1 || items > self.cpu.parts.items {
            for item in (thread..items).step_by(self.threads) {
                let (tile, attention) = (
                    self.tile(group, item / kv_heads),
                    attention(item % kv_heads),
                );
                // SAFETY: each (tile, head) is computed by one thread into its own columns and rows.
                unsafe { attention.run(self.cpu.isa, tile, &mut scratch.attention) };
            }
            return;
        }
        let mut dealt = 0;
        for item in 0..items {
            let (tile, attention) = (
                self.tile(group, item / kv_heads),
                attention(item % kv_heads),
            );
            for partition in 0..(tile.position + 1).div_ceil(PARTITION) {
                if dealt % self.threads == thread {
                    let part = self.cpu.parts.at(item, partition);
                    // SAFETY: each part is computed by one thread, into its own place.
                    unsafe {
                        let (isa, scratch) = (self.cpu.isa, &mut scratch.attention);
                        attention.run_partition(isa, tile, partition, scratch, part);
                    }
                }
                dealt += 1;
            }
        }
        barrier.wait();
        for item in (thread..items).step_by(self.threads) {
            let (tile, attention) = (
                self.tile(group, item / kv_heads),
                attention(item % kv_heads),
            );
            let (parts, stride) = (self.cpu.parts.at(item, 0), self.cpu.parts.stride);
            // SAFETY: all parts are there since the barrier; each item is finished by one thread.
            unsafe { attention.finish(self.cpu.isa, tile, &mut scratch.attention, parts, stride) };
        }
    }

    fn tile(&self, group: usize, index: usize) -> QueryTile<'a> {
        let tile = self.cpu.state.tiles[index];
        let table = &self.step.tables[group];
        QueryTile {
            row: tile.row,
            position: tile.position,
            tokens: tile.tokens,
            blocks: table.blocks_of(tile.sequence),
            first_page: table.first_page[tile.sequence] as usize,
        }
    }

    fn keep_taps(&self, call: &Call) {
        for (index, slice, dim) in &call.taps {
            let mut kept = self.cpu.taps[*index]
                .1
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            kept.clear();
            for row in 0..rows_of(*dim, &self.cpu.state) {
                // SAFETY: between two barriers, nobody writes.
                kept.extend_from_slice(unsafe { slice.row(row) });
            }
        }
    }
}

/// The arguments of a product, resolved.
#[derive(Clone, Copy)]
struct Product<'a> {
    x: Rows,
    weight: WeightId,
    bias: Option<&'a [f32]>,
    residual: Option<Rows>,
    out: Rows,
    rows: usize,
}
