//! Owns what an op moves and computes: the numbers behind `mettle plan`, rooflines and kernel reports.

mod step_bytes;

pub use step_bytes::StepBytes;

use crate::kv::KvLayer;
use crate::op::{KvSource, Op, RecurrentKind, Resource};
use crate::plan::Plan;
use serde::Serialize;
use std::ops::Add;

/// Bytes and arithmetic of one op, or of a whole plan. A multiply-add is two FLOPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Weights read in a step, however many rows it has (of a mixture: what one token reads).
    pub weight_bytes: u64,
    /// Activations read and written, per row.
    pub activation_bytes: u64,
    /// Per row, context apart.
    pub flops: u64,
    /// Cache written, per row.
    pub kv_write_bytes: u64,
}

/// What attention adds for every token of context that it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ContextCost {
    /// Cache read per sequence.
    pub kv_bytes: u64,
    /// Per row.
    pub flops: u64,
    /// It sees no more tokens than this.
    pub window: Option<usize>,
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, o: Cost) -> Cost {
        Cost {
            weight_bytes: self.weight_bytes + o.weight_bytes,
            activation_bytes: self.activation_bytes + o.activation_bytes,
            flops: self.flops + o.flops,
            kv_write_bytes: self.kv_write_bytes + o.kv_write_bytes,
        }
    }
}

/// What one decode step of one sequence at a context length moves (weights and cache) and computes, at the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DecodeCost {
    pub context: usize,
    pub bytes: u64,
    pub flops: u64,
}

pub fn decode(plan: &Plan, context: usize) -> DecodeCost {
    let total = total(plan, 0);
    let mut decode = DecodeCost {
        context,
        bytes: total.weight_bytes + total.kv_write_bytes,
        flops: total.flops,
    };
    for cost in plan.nodes.iter().filter_map(|n| of_context(plan, &n.op)) {
        let seen = cost.window.map_or(context, |window| window.min(context)) as u64;
        decode.bytes += seen * cost.kv_bytes;
        decode.flops += seen * cost.flops;
    }
    decode
}

/// The part of an op's cost that grows with the context.
pub fn of_context(plan: &Plan, op: &Op) -> Option<ContextCost> {
    let cached = |kv: KvLayer| {
        let planes = &plan.kv_groups[kv.group].planes;
        planes.iter().map(|p| p.bytes() as u64).sum()
    };
    match op {
        Op::Attention(o) => Some(ContextCost {
            kv_bytes: match o.kv {
                KvSource::Paged(kv) => cached(kv),
                KvSource::Rows { .. } => 0,
            },
            flops: (2 * o.heads * (o.head_dim + o.value_dim)) as u64,
            window: o.window,
        }),
        Op::CrossAttention(o) => Some(ContextCost {
            kv_bytes: cached(o.kv),
            flops: (4 * o.heads * o.head_dim) as u64,
            window: None,
        }),
        _ => None,
    }
}

/// The cost of one op; `activation_bytes` is the size of an activation on the backend.
pub fn of(plan: &Plan, op: &Op, activation_bytes: usize) -> Cost {
    let accesses = op.accesses();
    let columns = accesses
        .reads
        .iter()
        .chain(&accesses.writes)
        .filter_map(|r| match r {
            Resource::Columns(slice) => Some(slice.width),
            Resource::Kv(_) => None,
        })
        .sum::<usize>();
    let all_weights: usize = accesses
        .weights
        .iter()
        .map(|id| plan.weight_of(*id).bytes())
        .sum();
    let elements = |id| plan.weight_of(id).elements() as u64;
    let mut cost = Cost {
        weight_bytes: all_weights as u64,
        activation_bytes: (columns * activation_bytes) as u64,
        ..Cost::default()
    };
    match op {
        Op::Embed(o) => {
            let table = plan.weight_of(o.table);
            cost.weight_bytes = (table.bytes() / table.rows()) as u64;
        }
        Op::Linear(o) => {
            cost.flops = 2 * elements(o.weight);
            if let Some(adapters) = &o.adapters {
                // One slot's matrices per token; the step reads the slots in use, at least one.
                let slots = adapters.slots as u64;
                let low_rank = elements(adapters.a) + elements(adapters.b);
                cost.flops += 2 * low_rank / slots;
                let bytes = |id| plan.weight_of(id).bytes() as u64;
                let all = bytes(adapters.a) + bytes(adapters.b);
                cost.weight_bytes -= all - all / slots;
            }
        }
        Op::LmHead(o) => cost.flops = 2 * elements(o.weight),
        Op::RopeKvWrite(o) => {
            cost.flops = 3 * (o.q.width + o.k.width) as u64;
            if o.kv_heads > 0 {
                let group = &plan.kv_groups[o.kv.group];
                cost.kv_write_bytes = group.planes.iter().map(|p| p.bytes() as u64).sum();
            }
        }
        Op::Recurrent(o) => {
            let plane = &plan.kv_groups[o.state.group].planes[o.plane];
            cost.kv_write_bytes = 2 * plane.bytes() as u64;
            cost.flops = match &o.kind {
                RecurrentKind::Convolution { kernel, .. } => (2 * kernel * o.x.width) as u64,
                RecurrentKind::GatedDelta {
                    value_heads,
                    key_dim,
                    value_dim,
                    ..
                } => (6 * value_heads * key_dim * value_dim) as u64,
            };
        }
        Op::MoeExperts(o) => {
            let share = |n: u64| n * o.top_k as u64 / o.expert_count as u64;
            cost.weight_bytes = share(cost.weight_bytes);
            cost.flops = share(2 * (elements(o.gate_up) + elements(o.down)));
        }
        Op::RmsNorm(o) => cost.flops = 4 * o.x.width as u64,
        Op::LayerNorm(o) => cost.flops = 7 * o.x.width as u64,
        Op::QkNorm(o) => cost.flops = 4 * o.x.width as u64,
        Op::GatedAct(o) => cost.flops = 5 * o.out.width as u64,
        Op::Elementwise(o) => cost.flops = o.out.width as u64,
        Op::Softcap(o) => cost.flops = 3 * o.x.width as u64,
        Op::MoeRoute(o) => cost.flops = 5 * o.logits.width as u64,
        Op::Pool(o) => cost.flops = o.x.width as u64,
        Op::TopK(o) => cost.flops = o.logits.width as u64,
        Op::Sample(o) => cost.flops = o.logits.width as u64,
        Op::AllReduce(o) => cost.flops = (o.x.width * (o.ranks - 1)) as u64,
        // Attention's is all in `of_context`.
        Op::Attention(_)
        | Op::CrossAttention(_)
        | Op::EmbedRows(_)
        | Op::Gather(_)
        | Op::HeadCopy(_) => {}
    }
    cost
}

/// The cost of all ops together.
pub fn total(plan: &Plan, activation_bytes: usize) -> Cost {
    plan.nodes
        .iter()
        .map(|node| of(plan, &node.op, activation_bytes))
        .fold(Cost::default(), Add::add)
}
