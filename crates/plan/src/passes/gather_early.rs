//! Owns the move of the choice of rows ahead of what the last layer computes row by row: behind the last op in which rows
//! meet, only rows whose output is wanted are computed. Of a prompt that is one row of the last layer's feed-forward.

use crate::buffer::{BufferId, Slice};
use crate::dim::Dim;
use crate::op::{Gather, Op, Resource};
use crate::plan::{Node, Plan};
use std::collections::HashMap;

pub fn apply(plan: &mut Plan) -> usize {
    let Some((gather, first)) = row_by_row(plan) else {
        return 0;
    };
    let Op::Gather(chosen) = plan.nodes[gather].op.clone() else {
        unreachable!("it was found as one");
    };
    let mut rows = FewerRows {
        twins: HashMap::new(),
    };
    // The choice itself reads the last of them.
    let inputs = read_before_written(plan, first..gather + 1);
    for index in first..gather {
        let mut node = plan.nodes[index].clone();
        node.op.for_each_slice(|slice| rows.redirect(plan, slice));
        node.taps
            .iter_mut()
            .for_each(|tap| rows.redirect(plan, &mut tap.slice));
        plan.nodes[index] = node;
    }
    // What was chosen is there already.
    let mut there = chosen.x;
    rows.redirect(plan, &mut there);
    let redirect = |slice: &mut Slice| {
        if chosen.out.covers(slice) {
            *slice = there.columns(slice.start - chosen.out.start, slice.width);
        }
    };
    for node in &mut plan.nodes[gather..] {
        node.op.for_each_slice(redirect);
        node.taps
            .iter_mut()
            .for_each(|tap| redirect(&mut tap.slice));
    }
    for output in [&mut plan.hidden, &mut plan.logits].into_iter().flatten() {
        redirect(output);
    }
    if plan.buffer_of(chosen.out).is_output {
        plan.buffers[chosen.out.buffer.0 as usize].is_output = false;
        plan.mark_output(there);
    }
    let taps = plan.nodes.remove(gather).taps;
    plan.nodes[gather - 1].taps.extend(taps);
    let gathers = inputs.into_iter().map(|x| {
        let mut out = x;
        rows.redirect(plan, &mut out);
        let rows = chosen.rows;
        Node {
            op: Op::Gather(Gather { x, rows, out }),
            taps: Vec::new(),
        }
    });
    let gathers: Vec<Node> = gathers.collect();
    plan.nodes.splice(first..first, gathers);
    gather - first
}

/// Where the rows whose output is wanted are chosen, and the first of the ops before it that compute row by row.
fn row_by_row(plan: &Plan) -> Option<(usize, usize)> {
    let is_choice = |op: &Op| matches!(op, Op::Gather(o) if Some(o.rows) == plan.logit_rows);
    let gather = plan.nodes.iter().position(|node| is_choice(&node.op))?;
    // What is touched behind the choice too keeps its place.
    let behind = plan.nodes[gather + 1..].iter();
    let behind: Vec<Slice> = behind.flat_map(|node| touched(&node.op)).collect();
    let before = plan.nodes[..gather].iter().rposition(|node| {
        let is_of_tokens = |slice: &Slice| {
            let buffer = plan.buffer_of(*slice);
            // Room of experts is for pairs of a row and an expert, whatever the rows are.
            let rows = matches!(buffer.rows, Dim::Tokens | Dim::ExpertAssignments);
            rows && !buffer.is_output && !behind.iter().any(|other| other.buffer == slice.buffer)
        };
        !computes_row_by_row(&node.op) || !touched(&node.op).all(|slice| is_of_tokens(&slice))
    });
    let first = before.map_or(0, |index| index + 1);
    // A norm alone is not worth the second choice.
    let products = |node: &Node| matches!(node.op, Op::Linear(_) | Op::MoeExperts(_));
    let pays = plan.nodes[first..gather].iter().any(products);
    pays.then_some((gather, first))
}

fn computes_row_by_row(op: &Op) -> bool {
    match op {
        Op::RmsNorm(_)
        | Op::LayerNorm(_)
        | Op::GatedAct(_)
        | Op::Elementwise(_)
        | Op::MoeRoute(_)
        | Op::MoeExperts(_)
        | Op::AllReduce(_) => true,
        // Adapters are chosen by the sequence that a row stands in.
        Op::Linear(o) => o.adapters.is_none(),
        _ => false,
    }
}

/// The columns that an op reads or writes.
fn touched(op: &Op) -> impl Iterator<Item = Slice> {
    let accesses = op.accesses();
    columns(accesses.reads.into_iter().chain(accesses.writes))
}

fn columns(resources: impl Iterator<Item = Resource>) -> impl Iterator<Item = Slice> {
    resources.filter_map(|resource| match resource {
        Resource::Columns(slice) => Some(slice),
        Resource::Kv(_) => None,
    })
}

/// What these ops read of what others wrote: columns that some op before them in the range covers are not.
fn read_before_written(plan: &Plan, range: std::ops::Range<usize>) -> Vec<Slice> {
    let (mut inputs, mut written): (Vec<Slice>, Vec<Slice>) = (Vec::new(), Vec::new());
    for node in &plan.nodes[range] {
        let accesses = node.op.accesses();
        for slice in columns(accesses.reads.into_iter()) {
            let known = |slices: &[Slice]| slices.iter().any(|other| other.covers(&slice));
            let is_of_tokens = plan.buffer_of(slice).rows == Dim::Tokens;
            if is_of_tokens && !known(&written) && !known(&inputs) {
                inputs.push(slice);
            }
        }
        written.extend(columns(accesses.writes.into_iter()));
    }
    inputs
}

/// The buffers of wanted rows that stand for buffers of all tokens.
struct FewerRows {
    twins: HashMap<BufferId, BufferId>,
}

impl FewerRows {
    fn redirect(&mut self, plan: &mut Plan, slice: &mut Slice) {
        let buffer = plan.buffer_of(*slice);
        if buffer.rows != Dim::Tokens {
            return;
        }
        let (name, width, element) = (buffer.name.clone(), buffer.width, buffer.element);
        let twin = self.twins.entry(slice.buffer).or_insert_with(|| {
            plan.typed_buffer(name, Dim::LogitRows, width, element)
                .buffer
        });
        slice.buffer = *twin;
    }
}
