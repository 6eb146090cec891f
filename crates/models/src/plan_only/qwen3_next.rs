//! Owns Qwen3-Next: three layers of gated delta rule to one of gated attention, each followed by a mixture of experts.

use super::Declared;
use super::feed_forward::FeedForward;
use crate::config::Config;
use crate::error::Result;
use crate::mixture::{Mixture, PROJECTIONS};
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;
use serde_json::Value;

pub const NAME: &str = "qwen3_next";

/// Norms store weight - 1, but for the one inside the recurrent layers.
const NORM_OFFSET: f32 = 1.0;

struct Spec {
    vocab: usize,
    hidden: usize,
    layers: usize,
    /// Every so many layers one has full attention.
    attention_interval: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    rope: Rope,
    eps: f32,
    kernel: usize,
    key_heads: usize,
    key_dim: usize,
    value_heads: usize,
    value_dim: usize,
    shared_width: usize,
    mixture: Mixture,
}

impl Spec {
    fn read(json: &Value) -> Result<Spec> {
        let config = Config::new("config.json", json)?;
        config.text("model_type")?;
        // No layer has a dense feed-forward where every step of layers is sparse.
        config.ignore(&["max_position_embeddings", "intermediate_size"]);
        config.must_be("hidden_act", "silu")?;
        config.must_be("tie_word_embeddings", false)?;
        config.must_be("attention_bias", false)?;
        config.must_be("decoder_sparse_step", 1)?;
        config.must_be("mlp_only_layers", Value::Array(Vec::new()))?;
        config.must_be("use_sliding_window", false)?;
        if config.get("rope_scaling").is_some() {
            return Err(config.unsupported("rope_scaling", "only null is"));
        }
        let head_dim = config.count("head_dim")?;
        let rotated = head_dim as f32 * config.float("partial_rotary_factor")?;
        if rotated < 2.0 || rotated > head_dim as f32 || rotated % 2.0 != 0.0 {
            let share = format!("an even part of {head_dim} is");
            return Err(config.unsupported("partial_rotary_factor", share));
        }
        let base = config.positive("rope_theta")?;
        let spec = Spec {
            vocab: config.width("vocab_size")?,
            hidden: config.width("hidden_size")?,
            layers: config.layers("num_hidden_layers")?,
            attention_interval: config.layers("full_attention_interval")?,
            heads: config.count("num_attention_heads")?,
            kv_heads: config.count("num_key_value_heads")?,
            head_dim,
            rope: Rope::new(RopeStyle::Neox, rotated as usize, base, &RopeScaling::None),
            eps: config.float("rms_norm_eps")?,
            kernel: config.count("linear_conv_kernel_dim")?,
            key_heads: config.count("linear_num_key_heads")?,
            key_dim: config.count("linear_key_head_dim")?,
            value_heads: config.count("linear_num_value_heads")?,
            value_dim: config.count("linear_value_head_dim")?,
            shared_width: config.width("shared_expert_intermediate_size")?,
            mixture: Mixture {
                experts: config.count("num_experts")?,
                top_k: config.count("num_experts_per_tok")?,
                width: config.width("moe_intermediate_size")?,
                score: RouteScore::Softmax,
                normalize: config.flag_or_none("norm_topk_prob")?.unwrap_or(true),
                scale: 1.0,
                groups: 1,
                top_groups: 1,
                activation: Activation::Silu,
            },
        };
        let whole = |heads: usize, among: usize| heads.is_multiple_of(among);
        if !whole(spec.heads, spec.kv_heads) || !whole(spec.value_heads, spec.key_heads) {
            return Err(config.mismatch(format!(
                "{} heads among {} KV heads, {} value heads among {} key heads",
                spec.heads, spec.kv_heads, spec.value_heads, spec.key_heads
            )));
        }
        spec.mixture.check(&config)?;
        spec.mixture.check_stored_one_by_one(&config, spec.layers)?;
        config.finish()?;
        Ok(spec)
    }
}

pub fn plans(json: &Value, declared: Declared) -> Result<Vec<Plan>> {
    let spec = Spec::read(json)?;
    let (dtype, kv) = (declared.weight_type, declared.kv_element);
    let mut ops = PlanBuilder::new(declared.name, dtype, kv, spec.eps, NORM_OFFSET);
    let h = ops.tokens("h", spec.hidden);
    let x = ops.tokens("x", spec.hidden);
    let projected = ops.tokens("proj", spec.hidden);
    let full = FullAttention::new(&spec, &mut ops);
    let delta = DeltaNet::new(&spec, &mut ops);
    let experts_out = ops.tokens("experts_out", spec.hidden);
    let mixture = spec.mixture.buffers(&mut ops, experts_out);
    let shared = FeedForward::new(&mut ops, "shared", spec.shared_width, projected);
    let shared_gate = ops.tokens("shared_expert_gate", 1);
    ops.embed("model.embed_tokens.weight", spec.vocab, 1.0, h);
    for layer in 0..spec.layers {
        let name = |what: &str| format!("model.layers.{layer}.{what}");
        ops.rms_norm(&name("input_layernorm"), h, x);
        match (layer + 1).is_multiple_of(spec.attention_interval) {
            true => full.push(&spec, &mut ops, &name("self_attn"), x, projected),
            false => delta.push(&spec, &mut ops, &name("linear_attn"), x, projected),
        }
        ops.add(h, projected);
        ops.rms_norm(&name("post_attention_layernorm"), h, x);
        let weights =
            spec.mixture
                .stored_one_by_one(&mut ops, &name("mlp"), PROJECTIONS, spec.hidden);
        let router = name("mlp.gate");
        spec.mixture
            .push(&mut ops, mixture, &router, false, None, weights, x);
        ops.add(h, mixture.out);
        shared.push(&mut ops, &name("mlp.shared_expert"), x);
        ops.linear(&name("mlp.shared_expert_gate"), x, shared_gate, false);
        ops.elementwise(Expr::SigmoidGate, projected, Some(shared_gate), projected);
        ops.add(h, projected);
        ops.plan.tap(format!("layer.{layer}.out"), h);
    }
    ops.head("model.norm", None, "lm_head.weight", spec.vocab, h);
    Ok(vec![ops.finish()])
}

struct FullAttention {
    q: Slice,
    gate: Slice,
    k: Slice,
    v: Slice,
    out: Slice,
}

impl FullAttention {
    fn new(spec: &Spec, ops: &mut PlanBuilder) -> FullAttention {
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        FullAttention {
            q: ops.tokens("q", q),
            gate: ops.tokens("attn_gate", q),
            k: ops.tokens("k", kv),
            v: ops.tokens("v", kv),
            out: ops.tokens("attn_out", q),
        }
    }

    /// One tensor holds each head's query rows and, after them, its output gate's.
    fn push(&self, spec: &Spec, ops: &mut PlanBuilder, name: &str, x: Slice, out: Slice) {
        let (heads, kv_heads, head_dim) = (spec.heads, spec.kv_heads, spec.head_dim);
        let tensor = format!("{name}.q_proj.weight");
        let of = [2 * heads * head_dim, x.width];
        for (start, out) in [(0, self.q), (head_dim, self.gate)] {
            let take = Take::Rows {
                start,
                count: head_dim,
                period: 2 * head_dim,
            };
            let weight = ops.cut(&tensor, &of, take, &[out.width, x.width]);
            ops.linear_of(weight, None, 1, x, out);
        }
        ops.linear(&format!("{name}.k_proj"), x, self.k, false);
        ops.linear(&format!("{name}.v_proj"), x, self.v, false);
        ops.head_norm(&format!("{name}.q_norm"), self.q, heads, NORM_OFFSET);
        ops.head_norm(&format!("{name}.k_norm"), self.k, kv_heads, NORM_OFFSET);
        let plane = (kv_heads, head_dim);
        let kv = ops.plan.kv_layer("full", &[plane, plane], Retention::Full);
        let rope = ops.plan.rope(spec.rope.clone());
        ops.plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: self.q,
            k: self.k,
            v: Some(self.v),
            rope: Some(rope),
            head_dim,
            rotate_from: 0,
            heads,
            kv_heads,
            kv,
        }));
        ops.plan.push(Op::Attention(Attention {
            q: self.q,
            kv: KvSource::Paged(kv),
            heads,
            kv_heads,
            head_dim,
            value_dim: head_dim,
            values_in_keys: false,
            scale: (head_dim as f32).sqrt().recip(),
            window: None,
            softcap: None,
            sinks: None,
            bias: None,
            visible_to: None,
            out: self.out,
        }));
        ops.elementwise(Expr::SigmoidGate, self.out, Some(self.gate), self.out);
        ops.linear(&format!("{name}.o_proj"), self.out, out, false);
    }
}

struct DeltaNet {
    /// Queries, keys and values, before and after the convolution.
    mixed: Slice,
    convolved: Slice,
    beta: Slice,
    decay: Slice,
    gate: Slice,
    out: Slice,
}

impl DeltaNet {
    fn new(spec: &Spec, ops: &mut PlanBuilder) -> DeltaNet {
        let values = spec.value_heads * spec.value_dim;
        let mixed = 2 * spec.key_heads * spec.key_dim + values;
        DeltaNet {
            mixed: ops.tokens("delta_qkv", mixed),
            convolved: ops.tokens("delta_conv", mixed),
            beta: ops.tokens("delta_beta", spec.value_heads),
            decay: ops.tokens("delta_decay", spec.value_heads),
            gate: ops.tokens("delta_gate", values),
            out: ops.tokens("delta_out", values),
        }
    }

    fn push(&self, spec: &Spec, ops: &mut PlanBuilder, name: &str, x: Slice, out: Slice) {
        self.projections(spec, ops, name, x);
        let state = self.state(spec, ops);
        let kernel = spec.kernel;
        let weight = format!("{name}.conv1d.weight");
        let weight = ops.plan.weight(weight, &[self.mixed.width, 1, kernel]);
        ops.plan.push(Op::Recurrent(Recurrent {
            x: self.mixed,
            kind: RecurrentKind::Convolution { weight, kernel },
            state,
            plane: 0,
            out: self.convolved,
        }));
        let silu = Expr::Apply(Activation::Silu);
        ops.elementwise(silu, self.convolved, None, self.convolved);
        let heads = spec.value_heads;
        let decay_log = ops.plan.weight(format!("{name}.A_log"), &[heads]);
        let decay_bias = ops.plan.weight(format!("{name}.dt_bias"), &[heads]);
        ops.plan.push(Op::Recurrent(Recurrent {
            x: self.convolved,
            kind: RecurrentKind::GatedDelta {
                decay: self.decay,
                beta: self.beta,
                decay_log,
                decay_bias,
                key_heads: spec.key_heads,
                value_heads: heads,
                key_dim: spec.key_dim,
                value_dim: spec.value_dim,
            },
            state,
            plane: 1,
            out: self.out,
        }));
        ops.head_norm(&format!("{name}.norm"), self.out, heads, 0.0);
        ops.elementwise(Expr::SiluGate, self.out, Some(self.gate), self.out);
        ops.linear(&format!("{name}.out_proj"), self.out, out, false);
    }

    /// The checkpoint groups rows by key head: its query, its key, its values, their gates; likewise beta and decay.
    fn projections(&self, spec: &Spec, ops: &mut PlanBuilder, name: &str, x: Slice) {
        let heads = spec.key_heads;
        let (key, values) = (spec.key_dim, spec.value_heads / heads * spec.value_dim);
        let period = 2 * key + 2 * values;
        let tensor = format!("{name}.in_proj_qkvz.weight");
        let of = [heads * period, x.width];
        let part = |ops: &PlanBuilder, start, count| {
            let take = Take::Rows {
                start,
                count,
                period,
            };
            ops.cut_part(&tensor, &of, take, &[heads * count, x.width])
        };
        let mixed = vec![
            part(ops, 0, key),
            part(ops, key, key),
            part(ops, 2 * key, values),
        ];
        let gate = vec![part(ops, 2 * key + values, values)];
        for (parts, out) in [(mixed, self.mixed), (gate, self.gate)] {
            let weight = ops.plan.weight_of_parts(parts);
            ops.linear_of(weight, None, 1, x, out);
        }
        let tensor = format!("{name}.in_proj_ba.weight");
        let of = [2 * spec.value_heads, x.width];
        let count = spec.value_heads / heads;
        for (start, out) in [(0, self.beta), (count, self.decay)] {
            let take = Take::Rows {
                start,
                count,
                period: 2 * count,
            };
            let weight = ops.cut(&tensor, &of, take, &[out.width, x.width]);
            ops.linear_of(weight, None, 1, x, out);
        }
    }

    /// The convolution's last inputs and the delta rule's matrices; f32, as small errors would pile up in them.
    fn state(&self, spec: &Spec, ops: &mut PlanBuilder) -> KvLayer {
        let declared = std::mem::replace(&mut ops.plan.kv_element, KvElement::F32);
        let planes = [
            (self.mixed.width, spec.kernel - 1),
            (spec.value_heads, spec.key_dim * spec.value_dim),
        ];
        let state = ops.plan.kv_layer("delta", &planes, Retention::State);
        ops.plan.kv_element = declared;
        state
    }
}
