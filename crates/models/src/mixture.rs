//! Owns the mixture of experts that all architectures share: a router, then the chosen experts.

use crate::config::Config;
use crate::error::Result;
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;

/// Three times what the largest published model has; the plan's size grows with it.
const MOST_TENSORS: usize = 1 << 18;
/// Eight times what the largest published model has.
const MOST_EXPERTS: usize = 1 << 12;
const WIDEST: usize = 1 << 20;
/// Of one expert: gate, up and down.
const TENSORS_AN_EXPERT: usize = 3;

/// What most checkpoints call an expert's projections.
pub const PROJECTIONS: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// As most routers are: no groups, no scale.
    pub fn plain(experts: usize, top_k: usize, width: usize) -> Mixture {
        Mixture {
            experts,
            top_k,
            width,
            score: RouteScore::Softmax,
            normalize: true,
            scale: 1.0,
            groups: 1,
            top_groups: 1,
            activation: Activation::Silu,
        }
    }

    pub fn check(&self, config: &Config) -> Result<()> {
        match self.problem() {
            Some(problem) => Err(config.mismatch(problem)),
            None => Ok(()),
        }
    }

    /// What no mixture has, in words.
    pub fn problem(&self) -> Option<String> {
        let (experts, groups, top_k) = (self.experts, self.groups, self.top_k);
        if experts == 0 || experts > MOST_EXPERTS || top_k == 0 || top_k > experts {
            return Some(format!("{top_k} of {experts} experts a token"));
        }
        if self.width == 0 || self.width > WIDEST {
            let width = self.width;
            return Some(format!(
                "experts of width {width}; it must be 1 to {WIDEST}"
            ));
        }
        if !experts.is_multiple_of(groups) || self.top_groups > groups {
            let chosen = self.top_groups;
            return Some(format!("{chosen} of {groups} groups of {experts} experts"));
        }
        None
    }

    /// For [`Mixture::stored_one_by_one`] in `layers` layers: every tensor is a name in memory.
    pub fn check_stored_one_by_one(&self, config: &Config, layers: usize) -> Result<()> {
        let experts = self.experts;
        let tensors = layers.saturating_mul(experts.saturating_mul(TENSORS_AN_EXPERT));
        match tensors <= MOST_TENSORS {
            true => Ok(()),
            false => Err(config.mismatch(format!(
                "{layers} layers of {experts} experts are {tensors} tensors; at most {MOST_TENSORS} are supported"
            ))),
        }
    }

    /// `out` gets what the chosen experts give together.
    pub fn buffers(&self, ops: &mut PlanBuilder, out: Slice) -> MixtureBuffers {
        let hidden = out.width;
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
            out,
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
        [gate, up, down_name]: [&str; 3],
        hidden: usize,
    ) -> ExpertWeights {
        let name = |expert, what| format!("{prefix}.experts.{expert}.{what}.weight");
        let mut gate_up = Vec::with_capacity(2 * self.experts);
        let mut down = Vec::with_capacity(self.experts);
        for expert in 0..self.experts {
            for what in [gate, up] {
                gate_up.push(ops.plan.part(name(expert, what), &[self.width, hidden]));
            }
            let shape = [hidden, self.width];
            down.push(ops.plan.part(name(expert, down_name), &shape));
        }
        ExpertWeights {
            gate_up: ops.plan.weight_of_parts(gate_up),
            gate_up_bias: None,
            down: ops.plan.weight_of_parts(down),
            down_bias: None,
        }
    }
}
