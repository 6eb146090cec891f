//! Owns one mixture of experts as the CPU runs it: the step's pairs sorted by expert, each expert's rows gathered, one
//! product per expert and matrix, and the results added by their shares.
//!
//! All threads share the panels of all chosen experts, in prefill and in decode alike; a token's row is quantized once.

use crate::executable::{OWN_ROWS, ThreadScratch};
use crate::kernels::linear::{Input, Linear, Room};
use crate::kernels::{gated, shares};
use crate::memory::Rows;
use crate::pack::PackedMatrix;
use crate::phases::Walk;
use crate::run::Run;
use crate::weights::Weights;
use mettle_plan::{Activation, WeightId};

/// The arguments of the op, resolved.
pub struct Experts {
    pub x: Rows,
    /// Numbers as bits, and shares: a token's side by side, best first.
    pub experts: Rows,
    pub shares: Rows,
    pub gate_up: WeightId,
    pub gate_up_bias: Option<WeightId>,
    pub down: WeightId,
    pub down_bias: Option<WeightId>,
    pub activation: Activation,
    pub expert_count: usize,
    pub width: usize,
    pub scratch: Rows,
    pub out: Rows,
}

impl Experts {
    pub fn top_k(&self) -> usize {
        self.experts.width
    }

    /// What a pair's row of the scratch holds before a product: its token's row, later its activated one.
    fn inputs(&self, columns: usize) -> Rows {
        self.scratch.columns(0, columns)
    }

    /// What it holds after a product: gate and up, later the expert's result.
    fn results(&self, columns: usize) -> Rows {
        let start = self.width.max(self.x.width);
        self.scratch.columns(start, columns)
    }
}

/// One of the two products of every chosen expert.
struct Product<'a> {
    matrices: &'a [PackedMatrix],
    bias: Option<&'a [f32]>,
    x: Rows,
    out: Rows,
    /// Which forms of the input the matrices take.
    takes_quantized: bool,
    takes_dense: bool,
}

impl<'a> Product<'a> {
    fn new(
        weights: &'a Weights,
        matrices: WeightId,
        bias: Option<WeightId>,
        x: Rows,
        out: Rows,
    ) -> Product<'a> {
        let matrices = weights.matrix(matrices);
        let is_quantized = |matrix: &PackedMatrix| matrix.takes_integers();
        Product {
            matrices,
            bias: bias.map(|id| weights.vector(id)),
            x,
            out,
            takes_quantized: matrices.iter().any(is_quantized),
            takes_dense: !matrices.iter().all(is_quantized),
        }
    }
}

impl Run<'_> {
    /// True for the thread that began its last phase.
    ///
    /// # Safety
    /// See `Run::all_calls`.
    pub(crate) unsafe fn experts(
        &self,
        op: &Experts,
        tokens: usize,
        scratch: &mut ThreadScratch,
        walk: &mut Walk<'_>,
    ) -> bool {
        if tokens == 0 {
            return false;
        }
        let isa = self.cpu.isa;
        let (hidden, width, top_k) = (op.x.width, op.width, op.top_k());
        let product = |matrices, bias, columns, results| {
            let (x, out) = (op.inputs(columns), op.results(results));
            Product::new(&self.plan.weights, matrices, bias, x, out)
        };
        let gate_up = product(op.gate_up, op.gate_up_bias, hidden, 2 * width);
        let down = product(op.down, op.down_bias, width, hidden);
        // SAFETY: everything is read and written inside items of phases. Items are disjoint rows (of tokens, of pairs) or
        // columns of pairs' rows, and each phase reads only what earlier ones finished.
        unsafe {
            let is_small = tokens <= OWN_ROWS;
            walk.phase(1, |_| {
                self.sort(op, tokens);
                if is_small {
                    (0..tokens).for_each(|token| self.gather(op, &gate_up, token));
                }
            });
            if !is_small {
                self.rows(walk, tokens, |tokens| {
                    tokens.for_each(|token| self.gather(op, &gate_up, token));
                });
            }
            self.product(op, &gate_up, &mut scratch.linear, walk);
            self.rows(walk, tokens * top_k, |pairs| {
                for row in pairs {
                    let (gate, up) = gate_up.out.row(row).split_at(width);
                    let activated = down.x.row_mut(row);
                    gated::gated(isa, op.activation, gate, up, activated);
                    if down.takes_quantized {
                        self.cpu.pair_rows.quantize(isa, row, activated);
                    }
                }
            });
            self.product(op, &down, &mut scratch.linear, walk);
            self.rows(walk, tokens, |tokens| {
                let assignments = self.cpu.assignments.read();
                for token in tokens {
                    let (out, shares) = (op.out.row_mut(token), op.shares.row(token));
                    for (rank, share) in shares.iter().enumerate() {
                        let x = down.out.row(assignments.place(token * top_k + rank));
                        match rank {
                            0 => shares::scale(isa, x, *share, out),
                            _ => shares::add_scaled(isa, x, *share, out),
                        }
                    }
                }
            })
        }
    }

    /// # Safety
    /// The only item of its phase.
    unsafe fn sort(&self, op: &Experts, tokens: usize) {
        // SAFETY: the caller's promise: nobody else reads or writes the order now, and routing is finished.
        let (assignments, experts) =
            unsafe { (self.cpu.assignments.get(), |token| op.experts.row(token)) };
        let pairs = (0..tokens).flat_map(experts).map(|expert| expert.to_bits());
        assignments.sort(op.expert_count, pairs);
    }

    /// Puts a token's row where each of its experts reads it.
    ///
    /// # Safety
    /// Inside an item that has this token to itself, after `sort`.
    unsafe fn gather(&self, op: &Experts, product: &Product<'_>, token: usize) {
        let (isa, rows, top_k) = (self.cpu.isa, &self.cpu.pair_rows, op.top_k());
        // SAFETY: the caller's promise; the rows of a token's pairs are its own.
        unsafe {
            let assignments = self.cpu.assignments.read();
            let place = |rank| assignments.place(token * top_k + rank);
            let x = op.x.row(token);
            for rank in 0..top_k {
                if product.takes_dense {
                    product.x.row_mut(place(rank)).copy_from_slice(x);
                }
                match rank {
                    _ if !product.takes_quantized => {}
                    0 => rows.quantize(isa, place(0), x),
                    _ => rows.copy(place(0), place(rank), x.len()),
                }
            }
        }
    }

    /// Every chosen expert's product with its rows.
    ///
    /// # Safety
    /// The inputs are finished.
    unsafe fn product(
        &self,
        op: &Experts,
        product: &Product<'_>,
        room: &mut Room,
        walk: &mut Walk<'_>,
    ) {
        let parts = product.matrices.len() / op.expert_count;
        let panels: usize = product.matrices[..parts].iter().map(|p| p.panels()).sum();
        // No fewer than one expert is chosen. More than this is not known outside of an item.
        let items = self.items(panels);
        walk.phase(items, |item| {
            // SAFETY: sorted in a phase before, and not again before this one is over.
            let assignments = unsafe { self.cpu.assignments.read() };
            assignments.for_each_part(panels, item, items, |group, from, to| {
                let matrices = &product.matrices[group.expert * parts..][..parts];
                let (mut first_panel, mut first_column) = (0, 0);
                for part in matrices {
                    let end = first_panel + part.panels();
                    let (from, to) = (from.max(first_panel), to.min(end));
                    if from < to {
                        let rows = |rows: Rows| rows.rows_behind(group.first);
                        let bias = product.bias.map(|bias| {
                            &bias[group.expert * product.out.width + first_column..][..part.rows]
                        });
                        let quantized = self.cpu.pair_rows.rows_behind(group.first);
                        let linear = Linear {
                            weights: part,
                            input: match part.takes_integers() {
                                true => Input::Quantized(&quantized),
                                false => Input::Dense(rows(product.x)),
                            },
                            bias,
                            residual: None,
                            out: rows(product.out).columns(first_column, part.rows),
                            rows: group.rows,
                        };
                        let panels = from - first_panel..to - first_panel;
                        // SAFETY: the inputs are finished, and these columns of the group's rows are this item's.
                        unsafe { linear.run(self.cpu.isa, panels, room) };
                    }
                    first_panel = end;
                    first_column += part.rows;
                }
            });
        });
    }
}
