//! Owns the feed-forward of decoders whose layers are mixtures of experts, all of them or some: what stands beside the
//! experts, and under which names files store them.

use crate::error::{ModelError, Result};
use crate::mixture::{ExpertWeights, Mixture, MixtureBuffers, PROJECTIONS};
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;
use mettle_tensor::{DType, TensorSource};

#[derive(Clone, Debug, PartialEq)]
pub struct MixtureLayers {
    pub mixture: Mixture,
    /// An expert that every token passes.
    pub shared: Option<SharedExpert>,
    /// Whether each layer is a mixture; the others are dense. Empty: all are.
    pub layers: Vec<bool>,
    /// Router and experts add biases.
    pub biases: bool,
    pub stored: StoredExperts,
}

/// Its share is the sigmoid of a projection to one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    pub width: usize,
    /// The projection is stored as a vector, not as a matrix of one row.
    pub gate_is_vector: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredExperts {
    /// One by one: `block_sparse_moe.experts.N.w1` (gate), `w3` (up) and `w2` (down).
    Mixtral,
    /// One by one: `mlp.experts.N.gate_proj` and so on.
    OneByOne,
    /// `mlp.experts.gate_up_proj` and `down_proj` for all experts, gates before ups.
    Stacked,
    /// The same with gates and ups in turn; dense ones with the input as rows.
    Interleaved { transposed: bool },
    /// `ffn_gate_exps`, `ffn_up_exps` and `ffn_down_exps` for all experts.
    Gguf,
    /// `ffn_gate_up_exps` and `ffn_down_exps`, gates before ups.
    GgufFused,
}

/// Scratch that the mixtures of all layers use in turn.
#[derive(Clone, Copy)]
pub struct MixtureLayerBuffers {
    mixture: MixtureBuffers,
    shared: Option<SharedBuffers>,
}

#[derive(Clone, Copy)]
struct SharedBuffers {
    gate: Slice,
    up: Slice,
    activated: Slice,
    out: Slice,
    share: Slice,
}

/// The widest shared expert: as for other layers.
const WIDEST: usize = 1 << 20;

impl MixtureLayers {
    pub fn new(mixture: Mixture, stored: StoredExperts) -> MixtureLayers {
        MixtureLayers {
            mixture,
            shared: None,
            layers: Vec::new(),
            biases: false,
            stored,
        }
    }

    pub fn check(self, source_name: &str) -> Result<MixtureLayers> {
        let problem = match self.shared {
            Some(shared) if shared.width == 0 || shared.width > WIDEST => Some(format!(
                "a shared expert of width {}; it must be 1 to {WIDEST}",
                shared.width
            )),
            _ => self.mixture.problem(),
        };
        match problem {
            None => Ok(self),
            Some(problem) => Err(ModelError::Dimensions {
                source_name: source_name.to_owned(),
                problem,
            }),
        }
    }

    pub fn is_mixture(&self, layer: usize) -> bool {
        self.layers.get(layer).copied().unwrap_or(true)
    }

    /// Newer files may hold all experts of a layer in one tensor where older ones have one for each.
    pub fn look_at(&mut self, tensors: &dyn TensorSource) {
        let one_by_one = [StoredExperts::Mixtral, StoredExperts::OneByOne];
        let first = (0..).find(|layer| self.is_mixture(*layer));
        let first = first.expect("layers behind the list are mixtures");
        let name = format!("model.layers.{first}.mlp.experts.gate_up_proj");
        if one_by_one.contains(&self.stored) && tensors.find(&name).is_some() {
            self.stored = StoredExperts::Stacked;
        }
    }

    /// `out` gets what the layer adds to the residual stream.
    pub fn buffers(&self, ops: &mut PlanBuilder, out: Slice) -> MixtureLayerBuffers {
        MixtureLayerBuffers {
            mixture: self.mixture.buffers(ops, out),
            shared: self.shared.map(|shared| SharedBuffers {
                gate: ops.tokens("shared_gate", shared.width),
                up: ops.tokens("shared_up", shared.width),
                activated: ops.tokens("shared_act", shared.width),
                out: ops.tokens("shared_out", out.width),
                share: ops.tokens("shared_share", 1),
            }),
        }
    }

    /// The feed-forward of a layer, from its normalized input.
    pub fn push(&self, ops: &mut PlanBuilder, b: MixtureLayerBuffers, layer: usize, x: Slice) {
        let weights = self.weights(ops, layer, x.width);
        let router = self.router(layer);
        let biases = self.biases;
        self.mixture
            .push(ops, b.mixture, &router, biases, None, weights, x);
        ops.plan
            .tap(format!("layer.{layer}.experts"), b.mixture.out);
        if let (Some(shared), Some(b_shared)) = (self.shared, b.shared) {
            self.push_shared(ops, shared, b_shared, layer, x);
            ops.add(b.mixture.out, b_shared.out);
        }
    }

    fn push_shared(
        &self,
        ops: &mut PlanBuilder,
        shared: SharedExpert,
        b: SharedBuffers,
        layer: usize,
        x: Slice,
    ) {
        let name = |what: &str| match self.is_gguf() {
            true => format!("blk.{layer}.ffn_{what}_shexp"),
            false => format!("model.layers.{layer}.mlp.shared_expert.{what}_proj"),
        };
        ops.linear(&name("gate"), x, b.gate, false);
        ops.linear(&name("up"), x, b.up, false);
        ops.gated(b.gate, b.up, self.mixture.activation, b.activated);
        ops.linear(&name("down"), b.activated, b.out, false);
        let gate = match self.is_gguf() {
            true => format!("blk.{layer}.ffn_gate_inp_shexp"),
            false => format!("model.layers.{layer}.mlp.shared_expert_gate"),
        };
        match shared.gate_is_vector {
            false => ops.linear(&gate, x, b.share, false),
            true => {
                let tensor = format!("{gate}.weight");
                let shape = [1, x.width];
                let weight = ops.cut(&tensor, &[x.width], Take::Flattened, &shape);
                ops.linear_of(weight, None, 1, x, b.share);
            }
        }
        ops.elementwise(Expr::SigmoidGate, b.out, Some(b.share), b.out);
    }

    fn is_gguf(&self) -> bool {
        matches!(self.stored, StoredExperts::Gguf | StoredExperts::GgufFused)
    }

    fn router(&self, layer: usize) -> String {
        match self.stored {
            StoredExperts::Mixtral => format!("model.layers.{layer}.block_sparse_moe.gate"),
            StoredExperts::OneByOne | StoredExperts::Stacked => {
                format!("model.layers.{layer}.mlp.gate")
            }
            StoredExperts::Interleaved { .. } => format!("model.layers.{layer}.mlp.router"),
            StoredExperts::Gguf | StoredExperts::GgufFused => format!("blk.{layer}.ffn_gate_inp"),
        }
    }

    fn weights(&self, ops: &mut PlanBuilder, layer: usize, hidden: usize) -> ExpertWeights {
        let prefix = match self.stored {
            StoredExperts::Mixtral => format!("model.layers.{layer}.block_sparse_moe"),
            _ => format!("model.layers.{layer}.mlp"),
        };
        match self.stored {
            StoredExperts::Mixtral => {
                let names = ["w1", "w3", "w2"];
                self.mixture.stored_one_by_one(ops, &prefix, names, hidden)
            }
            StoredExperts::OneByOne => {
                self.mixture
                    .stored_one_by_one(ops, &prefix, PROJECTIONS, hidden)
            }
            StoredExperts::Stacked => self.stacked(ops, &prefix, hidden),
            StoredExperts::Interleaved { transposed } => {
                self.interleaved(ops, &prefix, hidden, transposed)
            }
            StoredExperts::Gguf => self.gguf(ops, layer, hidden, &["gate", "up"]),
            StoredExperts::GgufFused => self.gguf(ops, layer, hidden, &["gate_up"]),
        }
    }

    fn stacked(&self, ops: &mut PlanBuilder, prefix: &str, hidden: usize) -> ExpertWeights {
        let (experts, width) = (self.mixture.experts, self.mixture.width);
        let name = |what| format!("{prefix}.experts.{what}");
        let gate_up = [experts, 2 * width, hidden];
        ExpertWeights {
            gate_up: ops.plan.weight(name("gate_up_proj"), &gate_up),
            gate_up_bias: None,
            down: ops
                .plan
                .weight(name("down_proj"), &[experts, hidden, width]),
            down_bias: None,
        }
    }

    fn interleaved(
        &self,
        ops: &mut PlanBuilder,
        prefix: &str,
        hidden: usize,
        transposed: bool,
    ) -> ExpertWeights {
        let (experts, width) = (self.mixture.experts, self.mixture.width);
        let name = |what| format!("{prefix}.experts.{what}");
        let (gate_up, down) = ([experts, 2 * width, hidden], [experts, hidden, width]);
        let (mixed, of) = match transposed {
            true => (Take::TransposedEvenThenOdd, [experts, hidden, 2 * width]),
            false => (Take::EvenThenOdd, gate_up),
        };
        let bias = [experts, 2 * width];
        let bias_name = name("gate_up_proj_bias");
        let gate_up = ops.cut_part(&name("gate_up_proj"), &of, mixed, &gate_up);
        let turned = [experts, width, hidden];
        let down = match transposed {
            true => ops.cut_part(&name("down_proj"), &turned, Take::Transposed, &down),
            false => ops.plan.part(name("down_proj"), &down),
        };
        // Dense ones have the type of all other weights.
        let dtype = match transposed {
            true => ops.plan.weight_type,
            false => DType::MXFP4,
        };
        let mut weight = |part| ops.plan.weight_of_parts(vec![Part { dtype, ..part }]);
        ExpertWeights {
            gate_up: weight(gate_up),
            down: weight(down),
            gate_up_bias: Some(ops.cut(&bias_name, &bias, Take::EvenThenOdd, &bias)),
            down_bias: Some(ops.plan.weight(name("down_proj_bias"), &[experts, hidden])),
        }
    }

    fn gguf(
        &self,
        ops: &mut PlanBuilder,
        layer: usize,
        hidden: usize,
        gate_up: &[&str],
    ) -> ExpertWeights {
        let (experts, width) = (self.mixture.experts, self.mixture.width);
        let name = |what: &str, kind: &str| format!("blk.{layer}.ffn_{what}_exps.{kind}");
        let rows = 2 * width / gate_up.len();
        let both = |ops: &mut PlanBuilder, kind: &str, shape: &[usize]| {
            let part = |what: &&str| ops.plan.part(name(what, kind), shape);
            let parts = gate_up.iter().map(part).collect();
            ops.plan.weight_of_parts(parts)
        };
        let bias = self.biases;
        ExpertWeights {
            gate_up: both(ops, "weight", &[experts, rows, hidden]),
            gate_up_bias: bias.then(|| both(ops, "bias", &[experts, rows])),
            down: ops
                .plan
                .weight(name("down", "weight"), &[experts, hidden, width]),
            down_bias: bias.then(|| ops.plan.weight(name("down", "bias"), &[experts, hidden])),
        }
    }
}
