//! Owns the gated feed-forward that most architectures share: dense, or an expert that every token passes.

use crate::plan_builder::PlanBuilder;
use mettle_plan::{Activation, Slice};

pub struct FeedForward {
    gate: Slice,
    up: Slice,
    activated: Slice,
    pub activation: Activation,
    out: Slice,
}

impl FeedForward {
    pub fn new(ops: &mut PlanBuilder, name: &str, width: usize, out: Slice) -> FeedForward {
        FeedForward {
            gate: ops.tokens(&format!("{name}_gate"), width),
            up: ops.tokens(&format!("{name}_up"), width),
            activated: ops.tokens(&format!("{name}_act"), width),
            activation: Activation::Silu,
            out,
        }
    }

    pub fn push(&self, ops: &mut PlanBuilder, name: &str, x: Slice) {
        ops.linear(&format!("{name}.gate_proj"), x, self.gate, false);
        ops.linear(&format!("{name}.up_proj"), x, self.up, false);
        ops.gated(self.gate, self.up, self.activation, self.activated);
        let down = format!("{name}.down_proj");
        ops.linear(&down, self.activated, self.out, false);
    }
}
