//! Owns the mixture of experts as gpt-oss, Qwen3-Next and DeepSeek share it: a router, then the chosen experts.

use crate::config::Config;
use crate::error::Result;
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;

/// Three times what the largest published model has; the plan's size grows with it.
const MOST_TENSORS: usize = 1 << 18;
/// Of one expert: gate, up and down.
const TENSORS_AN_EXPERT: usize = 3;

#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    pub experts: usize,
    pub top_k: usize,
    /// Feed-forward size of one expert.
    pub width: usize,
    pub score: RouteScore,
    pub normalize: bool,
    pub scale: f32,
    pub groups: usize,
    pub top_groups: usize,
    pub activation: Activation,
}

/// Scratch that the mixtures of all layers use in turn.
#[derive(Clone, Copy)]
pub struct MixtureBuffers {
    logits: Slice,
    experts: Slice,
    shares: Slice,
    scratch: Slice,
    pub out: Slice,
}

/// The tensors of one layer's experts.
pub struct ExpertWeights {
    pub gate_up: WeightId,
    pub gate_up_bias: Option<WeightId>,
    pub down: WeightId,
    pub down_bias: Option<WeightId>,
}

impl Mixture {
    pub fn check(&self, config: &Config) -> Result<()> {
        let (experts, groups) = (self.experts, self.groups);
        if self.top_k > experts {
            return Err(config.mismatch(format!("{} of {experts} experts a token", self.top_k)));
        }
        if !experts.is_multiple_of(groups) || self.top_groups > groups {
            let chosen = self.top_groups;
            return Err(
                config.mismatch(format!("{chosen} of {groups} groups of {experts} experts"))
            );
        }
        Ok(())
    }

    /// For [`Mixture::stored_one_by_one`] in `layers` layers: every tensor is a name in memory.
    pub fn check_stored_one_by_one(&self, config: &Config, layers: usize) -> Result<()> {
        let experts = self.experts;
        let tensors = layers * experts * TENSORS_AN_EXPERT;
        match tensors <= MOST_TENSORS {
            true => Ok(()),
            false => Err(config.mismatch(format!(
                "{layers} layers of {experts} experts are {tensors} tensors; at most {MOST_TENSORS} are supported"
            ))),
        }
    }

    pub fn buffers(&self, ops: &mut PlanBuilder, hidden: usize) -> MixtureBuffers {
        let pair = MoeExperts::row_width(hidden, self.width);
        MixtureBuffers {
            logits: ops.tokens("router_logits", self.experts),
            experts: ops
                .plan
                .typed_buffer("experts", Dim::Tokens, self.top_k, Element::U32),
            shares: ops
                .plan
                .typed_buffer("shares", Dim::Tokens, self.top_k, Element::F32),
            scratch: ops.plan.buffer("expert_rows", Dim::ExpertAssignments, pair),
            out: ops.tokens("experts_out", hidden),
        }
    }

    /// Routes x and runs the experts; `router` is the name of the router's projection.
    pub fn push(
        &self,
        ops: &mut PlanBuilder,
        b: MixtureBuffers,
        router: &str,
        router_bias: bool,
        choice_bias: Option<WeightId>,
        weights: ExpertWeights,
        x: Slice,
    ) {
        ops.linear(router, x, b.logits, router_bias);
        ops.plan.push(Op::MoeRoute(MoeRoute {
            logits: b.logits,
            score: self.score,
            bias: choice_bias,
            groups: self.groups,
            top_groups: self.top_groups,
            top_k: self.top_k,
            normalize: self.normalize,
            scale: self.scale,
            experts: b.experts,
            shares: b.shares,
        }));
        ops.plan.push(Op::MoeExperts(MoeExperts {
            x,
            experts: b.experts,
            shares: b.shares,
            gate_up: weights.gate_up,
            gate_up_bias: weights.gate_up_bias,
            down: weights.down,
            down_bias: weights.down_bias,
            activation: self.activation,
            top_k: self.top_k,
            expert_count: self.experts,
            width: self.width,
            scratch: b.scratch,
            out: b.out,
        }));
    }

    /// Experts that the checkpoint stores one by one: `PREFIX.experts.N.gate_proj.weight` and so on.
    pub fn stored_one_by_one(
        &self,
        ops: &mut PlanBuilder,
        prefix: &str,
        hidden: usize,
    ) -> ExpertWeights {
        let name = |expert, what| format!("{prefix}.experts.{expert}.{what}.weight");
        let mut gate_up = Vec::with_capacity(2 * self.experts);
        let mut down = Vec::with_capacity(self.experts);
        for expert in 0..self.experts {
            for what in ["gate_proj", "up_proj"] {
                gate_up.push(ops.plan.part(name(expert, what), &[self.width, hidden]));
            }
            down.push(
                ops.plan
                    .part(name(expert, "down_proj"), &[hidden, self.width]),
            );
        }
        ExpertWeights {
            gate_up: ops.plan.weight_of_parts(gate_up),
            gate_up_bias: None,
            down: ops.plan.weight_of_parts(down),
            down_bias: None,
        }
    }
}
