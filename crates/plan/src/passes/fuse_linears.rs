//! Owns the fusion of neighbouring projections that read the same input into one with stacked weights.

use crate::buffer::{BufferId, Slice};
use crate::op::{KvSource, Linear, Op};
use crate::plan::{Node, Plan};
use crate::weight::{Weight, WeightId};
use std::ops::Range;

pub fn qkv(plan: &mut Plan) -> usize {
    fuse(plan, |op| match op {
        Op::RopeKvWrite(_) | Op::QkNorm(_) => true,
        Op::Attention(attention) => matches!(attention.kv, KvSource::Rows { .. }),
        _ => false,
    })
}

pub fn gate_up(plan: &mut Plan) -> usize {
    fuse(plan, |op| matches!(op, Op::GatedAct(_)))
}

/// Fuses every run of two or more such projections whose results go to an op that `wanted` names.
fn fuse(plan: &mut Plan, wanted: fn(&Op) -> bool) -> usize {
    let mut fused = 0;
    let mut start = 0;
    while start < plan.nodes.len() {
        let run = run_from(plan, start);
        if run.len() < 2 || !plan.nodes.get(run.end).is_some_and(|n| wanted(&n.op)) {
            start = run.end.max(start + 1);
            continue;
        }
        merge(plan, run);
        fused += 1;
        start += 1;
    }
    fused
}

/// The longest run of mergeable projections starting at `start`.
fn run_from(plan: &Plan, start: usize) -> Range<usize> {
    let Some(first) = mergeable(plan, start) else {
        return start..start;
    };
    let mut end = start + 1;
    while let Some(next) = (end < plan.nodes.len())
        .then(|| mergeable(plan, end))
        .flatten()
    {
        if next.x != first.x || next.bias.is_some() != first.bias.is_some() {
            break;
        }
        let previous = mergeable(plan, end - 1).expect("the run was checked");
        if !can_stand_beside(plan, previous.out, next.out) {
            break;
        }
        end += 1;
    }
    start..end
}

/// Two buffers of their own can be put together; the columns of one that an earlier layer's fusion made already are.
fn can_stand_beside(plan: &Plan, left: Slice, right: Slice) -> bool {
    let whole = |slice: Slice| slice.width == plan.buffer_of(slice).width;
    match left.buffer == right.buffer {
        true => left.start + left.width == right.start,
        false => whole(left) && whole(right),
    }
}

fn mergeable(plan: &Plan, index: usize) -> Option<&Linear> {
    match &plan.nodes[index].op {
        Op::Linear(linear)
            if linear.residual.is_none() && linear.adapters.is_none() && linear.groups == 1 =>
        {
            Some(linear)
        }
        _ => None,
    }
}

fn merge(plan: &mut Plan, run: Range<usize>) {
    let linears: Vec<Linear> = run
        .clone()
        .map(|i| mergeable(plan, i).expect("the run was checked").clone())
        .collect();
    let taps = run
        .clone()
        .flat_map(|i| plan.nodes[i].taps.clone())
        .collect();
    let outs: Vec<Slice> = linears.iter().map(|l| l.out).collect();
    let out = put_together(plan, &outs);
    let weight = stack(plan, linears.iter().map(|l| l.weight).collect());
    let biases: Vec<WeightId> = linears.iter().filter_map(|l| l.bias).collect();
    let bias = (!biases.is_empty()).then(|| stack(plan, biases));
    let op = Op::Linear(Linear {
        x: linears[0].x,
        weight,
        bias,
        residual: None,
        adapters: None,
        groups: 1,
        out,
    });
    plan.nodes.splice(run, [Node { op, taps }]);
}

/// One slice of all the outputs' columns. Layers use the same buffers in turn: the first one's fusion puts the buffers
/// together for all of them.
fn put_together(plan: &mut Plan, outs: &[Slice]) -> Slice {
    let width = outs.iter().map(|out| out.width).sum();
    if outs[0].buffer == outs[1].buffer {
        return Slice { width, ..outs[0] };
    }
    let names: Vec<&str> = outs
        .iter()
        .map(|out| plan.buffer_of(*out).name.as_str())
        .collect();
    let rows = plan.buffer_of(outs[0]).rows;
    let together = plan.buffer(names.join("+"), rows, width);
    let mut start = 0;
    for out in outs {
        redirect(plan, out.buffer, together.columns(start, out.width));
        start += out.width;
    }
    together
}

fn stack(plan: &mut Plan, ids: Vec<WeightId>) -> WeightId {
    let parts = ids
        .iter()
        .flat_map(|id| plan.weight_of(*id).parts.clone())
        .collect();
    plan.weights.push(Weight { parts });
    WeightId(plan.weights.len() as u32 - 1)
}

/// Makes everything that named columns of buffer `from` name the same columns of `to`.
fn redirect(plan: &mut Plan, from: BufferId, to: Slice) {
    let moved = |slice: &mut Slice| {
        if slice.buffer == from {
            *slice = to.columns(slice.start, slice.width);
        }
    };
    for node in &mut plan.nodes {
        node.op.for_each_slice(moved);
        node.taps.iter_mut().for_each(|t| moved(&mut t.slice));
    }
    let outputs = [&mut plan.hidden, &mut plan.logits];
    outputs.into_iter().flatten().for_each(moved);
}
