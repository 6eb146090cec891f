//! Owns products of a step: their inputs made and quantized, then items of panels and rows.

use crate::executable::{OWN_ROWS, ThreadScratch};
use crate::kernels::activations::QuantizedRows;
use crate::kernels::linear::{Input, Linear};
use crate::kernels::{gated, norm};
use crate::memory::Rows;
use crate::pack::PackedMatrix;
use crate::phases::Walk;
use crate::pool::share;
use crate::program::{Gated, Kernel, RmsNorm};
use crate::run::{ITEMS_PER_THREAD, Run};
use mettle_plan::WeightId;

/// Weights of an item where they are what takes the time, for few rows. Threads wait for the last item of each other, and
/// memory does not notice where one ends and the next begins.
const ITEM_BYTES: usize = 96 << 10;

/// Items of such a phase for each thread at the most.
const MOST_ITEMS_PER_THREAD: usize = 16;

/// Rows a thread from which on products are shared by rows too: many activations take more room than weights, and are best read
/// by the core that made them (AMX, 576 x 1536: 1.4 to 1.6 instead of 2.2 ms for 512 rows; AVX-512 on a Zen 5 whose cores are far apart: 10 % of prefill).
const SHARED_ROWS: usize = 64;

/// Panels of dense weights that kernels read side by side: an item has no fewer, if there are enough.
const DENSE_PANELS: usize = 8;

/// The arguments of a product, resolved.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub x: Rows,
    pub weight: WeightId,
    pub bias: Option<&'a [f32]>,
    pub residual: Option<Rows>,
    pub out: Rows,
    pub rows: usize,
    /// The norm or the gated activation that makes `x`, where no call before has.
    pub made_by: Option<&'a Kernel>,
}

impl Run<'_> {
    /// Items that panels are dealt out in where few rows meet so many bytes of weights.
    fn items_of_weights(&self, parts: usize, bytes: usize) -> usize {
        let enough = bytes / self.threads / ITEM_BYTES;
        match self.threads {
            1 => parts.min(1),
            threads => parts.min(threads * enough.clamp(ITEMS_PER_THREAD, MOST_ITEMS_PER_THREAD)),
        }
    }

    /// # Safety
    /// See `all_calls`.
    pub(crate) unsafe fn linear(
        &self,
        product: Product<'_>,
        scratch: &mut ThreadScratch,
        walk: &mut Walk<'_>,
    ) -> bool {
        if product.rows == 0 {
            return false;
        }
        let (mut did_first, mut first_column) = (false, 0);
        // All parts at once, but for those that take the input's columns in different orders.
        for parts in self
            .plan
            .weights
            .matrix(product.weight)
            .chunk_by(|a, b| a.order == b.order)
        {
            // SAFETY: the caller's promise.
            did_first = unsafe { self.linear_parts(product, parts, first_column, scratch, walk) };
            first_column += parts.iter().map(|p| p.rows).sum::<usize>();
        }
        did_first
    }

    /// The product of neighbouring parts with one order of columns, the first of which gives output column `first_column`.
    ///
    /// # Safety
    /// See `all_calls`.
    unsafe fn linear_parts(
        &self,
        product: Product<'_>,
        parts: &[PackedMatrix],
        first_column: usize,
        scratch: &mut ThreadScratch,
        walk: &mut Walk<'_>,
    ) -> bool {
        let isa = self.cpu.isa;
        let quantized = parts.iter().any(|p| p.takes_integers());
        let quantize = |rows: &QuantizedRows, row: usize, x: &[f32]| {
            // SAFETY: the row of the quantized ones is the caller's.
            unsafe {
                match &parts[0].order {
                    None => rows.quantize(isa, row, x),
                    Some(order) => rows.quantize_in_order(isa, row, x, order),
                }
            }
        };
        let ThreadScratch {
            quantized: own,
            linear: room,
            inputs: own_inputs,
            ..
        } = scratch;
        let norm = match product.made_by {
            Some(Kernel::RmsNorm(norm)) => Some(norm),
            _ => None,
        };
        let gated = match product.made_by {
            Some(Kernel::Gated(gated)) => Some(gated),
            _ => None,
        };
        let many = product.rows > OWN_ROWS;
        // Rows that are only quantized need not be written.
        let gated = match many && parts.iter().all(|p| p.takes_integers()) {
            true => gated,
            false => {
                if let Some(gated) = gated {
                    // SAFETY: the caller's promise.
                    unsafe { self.gated(gated, product.rows, walk) };
                }
                None
            }
        };
        let makes_inputs = quantized || norm.is_some();
        let shared = makes_inputs && many;
        if shared {
            let rows = &self.cpu.quantized;
            self.rows(walk, product.rows, |range| {
                for row in range {
                    // SAFETY: the input is finished, or made here by the thread that has its row.
                    unsafe {
                        if let Some(norm) = norm {
                            self.norm(norm, row, product.x.row_mut(row));
                        }
                        match gated {
                            Some(gated) => {
                                let made = &mut own_inputs[..product.x.width];
                                gated::gated(
                                    isa,
                                    gated.activation,
                                    gated.gate.row(row),
                                    gated.up.row(row),
                                    made,
                                );
                                quantize(rows, row, made);
                            }
                            None if quantized => quantize(rows, row, product.x.row(row)),
                            None => {}
                        }
                    }
                }
            });
        }
        let inputs = if shared { &self.cpu.quantized } else { &*own };
        // Few rows are made by each thread for itself, when it takes its first item.
        let mut to_make = makes_inputs && !shared;
        let x = match norm {
            Some(_) if to_make => {
                let width = product.x.width;
                assert!(own_inputs.len() >= product.rows * width);
                // SAFETY: as many rows are there, and stay as long as the scratch memory.
                unsafe { Rows::new(own_inputs.as_mut_ptr(), width, width) }
            }
            _ => product.x,
        };
        let panels: usize = parts.iter().map(|p| p.panels()).sum();
        let most_parts = if quantized { self.threads } else { 1 };
        let row_parts = (product.rows / SHARED_ROWS).clamp(1, most_parts);
        let pairs = panels.div_ceil(2);
        let mut items = match product.rows <= OWN_ROWS {
            true => self.items_of_weights(pairs, parts.iter().map(|p| p.bytes()).sum()),
            false => self.items(pairs),
        };
        if !quantized {
            items = items.min((panels / DENSE_PANELS).max(self.threads));
        }
        let panel_parts = items.div_ceil(row_parts);
        walk.phase(row_parts * panel_parts, |item| {
            if std::mem::take(&mut to_make) {
                for row in 0..product.rows {
                    // SAFETY: the input is finished; rows made of it are this thread's own.
                    unsafe {
                        if let Some(norm) = norm {
                            self.norm(norm, row, x.row_mut(row));
                        }
                        if quantized {
                            quantize(inputs, row, x.row(row));
                        }
                    }
                }
                if quantized && product.rows == 1 {
                    // SAFETY: the row is this thread's own.
                    unsafe { room.split(isa, inputs, parts[0].columns) };
                }
            }
            // A thread's own items come one after another, and so have the same rows.
            let rows = share(product.rows, item / panel_parts, row_parts);
            let behind = (row_parts > 1).then(|| inputs.rows_behind(rows.start));
            let inputs = behind.as_ref().unwrap_or(inputs);
            // In pairs, which many rows are multiplied with side by side.
            let mine = share(pairs, item % panel_parts, panel_parts);
            let mine = 2 * mine.start..panels.min(2 * mine.end);
            let (mut first_panel, mut first_column) = (0, first_column);
            for part in parts {
                let end = first_panel + part.panels();
                let (from, to) = (mine.start.max(first_panel), mine.end.min(end));
                if from < to {
                    let columns = |rows: Rows| rows.columns(first_column, part.rows);
                    let own = |all: Rows| columns(all).rows_behind(rows.start);
                    let linear = Linear {
                        weights: part,
                        input: match part.takes_integers() {
                            true if product.rows == 1 => Input::One(inputs),
                            true => Input::Quantized(inputs),
                            false => Input::Dense(x.rows_behind(rows.start)),
                        },
                        bias: product
                            .bias
                            .map(|b| &b[first_column..first_column + part.rows]),
                        residual: product.residual.map(own),
                        out: own(product.out),
                        rows: rows.len(),
                    };
                    // SAFETY: the panels of each item are its own columns of its rows of the output; see `all_calls`.
                    unsafe { linear.run(isa, from - first_panel..to - first_panel, room) };
                }
                first_panel = end;
                first_column += part.rows;
            }
        })
    }

    /// # Safety
    /// The norm's input is finished.
    pub(crate) unsafe fn norm(&self, norm: &RmsNorm, row: usize, out: &mut [f32]) {
        let weight = norm.weight.map(|id| self.plan.weights.vector(id));
        // SAFETY: the caller's promise.
        let x = unsafe { norm.x.row(row) };
        norm::rms_norm(self.cpu.isa, x, weight, norm.offset, norm.eps, out);
    }

    /// A gated activation as a call of its own.
    ///
    /// # Safety
    /// See `all_calls`.
    pub(crate) unsafe fn gated(&self, op: &Gated, rows: usize, walk: &mut Walk<'_>) -> bool {
        let isa = self.cpu.isa;
        self.cells(walk, rows, op.out.width, |row, columns| {
            let of = |rows: Rows| rows.columns(columns.start, columns.len());
            // SAFETY: the caller's promise; the cells are this item's.
            unsafe {
                let (gate, up, out) = (of(op.gate), of(op.up), of(op.out));
                gated::gated(
                    isa,
                    op.activation,
                    gate.row(row),
                    up.row(row),
                    out.row_mut(row),
                );
            }
        })
    }
}
