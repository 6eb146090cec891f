//! Owns what an op moves and computes: the numbers behind `mettle plan`, rooflines and kernel reports.

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
    /// Cache read per token of context and sequence.
    pub kv_read_bytes_per_context_token: u64,
    /// Per row and token of context.
    pub flops_per_context_token: u64,
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, o: Cost) -> Cost {
        Cost {
            weight_bytes: self.weight_bytes + o.weight_bytes,
            activation_bytes: self.activation_bytes + o.activation_bytes,
            flops: self.flops + o.flops,
            kv_write_bytes: self.kv_write_bytes + o.kv_write_bytes,
            kv_read_bytes_per_context_token: self.kv_read_bytes_per_context_token
                + o.kv_read_bytes_per_context_token,
            flops_per_context_token: self.flops_per_context_token + o.flops_per_context_token,
        }
    }
}

impl Cost {
    /// Bytes that one decode step of one sequence must move at the least: weights and its cache.
    pub fn decode_bytes(&self, context: u64) -> u64 {
        self.weight_bytes + self.kv_write_bytes + context * self.kv_read_bytes_per_context_token
    }

    pub fn decode_flops(&self, context: u64) -> u64 {
        self.flops + context * self.flops_per_context_token
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
            let group = &plan.kv_groups[o.kv.group];
            cost.kv_write_bytes = group.planes.iter().map(|p| p.bytes() as u64).sum();
        }
        Op::Attention(o) => {
            cost.flops_per_context_token = (2 * o.heads * (o.head_dim + o.value_dim)) as u64;
            if let KvSource::Paged(kv) = o.kv {
                let group = &plan.kv_groups[kv.group];
                cost.kv_read_bytes_per_context_token =
                    group.planes.iter().map(|p| p.bytes() as u64).sum();
            }
        }
        Op::CrossAttention(o) => {
            cost.flops_per_context_token = (4 * o.heads * o.head_dim) as u64;
            let group = &plan.kv_groups[o.kv.group];
            cost.kv_read_bytes_per_context_token =
                group.planes.iter().map(|p| p.bytes() as u64).sum();
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
        Op::EmbedRows(_) | Op::Gather(_) | Op::HeadCopy(_) => {}
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
