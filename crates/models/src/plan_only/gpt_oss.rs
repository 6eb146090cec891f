//! Owns gpt-oss: attention sinks, windows in every other layer, experts with biases and a clamped activation.

use super::Declared;
use crate::config::Config;
use crate::error::Result;
use crate::mixture::{ExpertWeights, Mixture};
use crate::plan_builder::PlanBuilder;
use crate::yarn::Yarn;
use mettle_plan::*;
use serde_json::Value;

pub const NAME: &str = "gpt_oss";

struct Spec {
    vocab: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    eps: f32,
    rope: Rope,
    /// Attention scale, YaRN's sharpening of queries and keys included.
    scale: f32,
    /// One per layer; absent: the whole context.
    windows: Vec<Option<usize>>,
    mixture: Mixture,
}

impl Spec {
    fn read(json: &Value) -> Result<Spec> {
        let config = Config::new("config.json", json)?;
        config.text("model_type")?;
        // What the checkpoint's quantization means for sizes is declared by the plan's weight type.
        config.ignore(&[
            "quantization_config",
            "initial_context_length",
            "max_position_embeddings",
        ]);
        config.must_be("hidden_act", "silu")?;
        config.must_be("attention_bias", true)?;
        config.must_be("tie_word_embeddings", false)?;
        let head_dim = config.even_count("head_dim")?;
        let rope = config.object("rope_scaling")?;
        let base = config.positive("rope_theta")?;
        let yarn = Yarn::read(&rope, base, head_dim)?;
        rope.finish()?;
        let window = config.width("sliding_window")?;
        let layers = config.layers("num_hidden_layers")?;
        let kinds = config
            .texts_or_none("layer_types")?
            .ok_or_else(|| config.missing("layer_types"))?;
        let windows: Option<Vec<Option<usize>>> = kinds
            .iter()
            .map(|kind| match *kind {
                "sliding_attention" => Some(Some(window)),
                "full_attention" => Some(None),
                _ => None,
            })
            .collect();
        let windows = windows.filter(|w| w.len() == layers).ok_or_else(|| {
            let kinds = format!("{layers} of sliding_attention or full_attention are");
            config.unsupported("layer_types", kinds)
        })?;
        let top_k = config.count("num_experts_per_tok")?;
        config.must_be("experts_per_token", top_k)?;
        let spec = Spec {
            vocab: config.width("vocab_size")?,
            hidden: config.width("hidden_size")?,
            heads: config.count("num_attention_heads")?,
            kv_heads: config.count("num_key_value_heads")?,
            head_dim,
            eps: config.float("rms_norm_eps")?,
            rope: Rope::new(RopeStyle::Neox, head_dim, base, &yarn.scaling),
            scale: yarn.attention_factor.powi(2) / (head_dim as f32).sqrt(),
            windows,
            mixture: Mixture {
                experts: config.count("num_local_experts")?,
                top_k,
                width: config.width("intermediate_size")?,
                score: RouteScore::SoftmaxOfTop,
                normalize: false,
                scale: 1.0,
                groups: 1,
                top_groups: 1,
                activation: Activation::ClampedSwiglu {
                    limit: config.float("swiglu_limit")?,
                    // transformers' default; the published configs do not name it.
                    alpha: config.float_or_none("swiglu_alpha")?.unwrap_or(1.702),
                },
            },
        };
        if !spec.heads.is_multiple_of(spec.kv_heads) {
            let heads = format!("{} heads among {} KV heads", spec.heads, spec.kv_heads);
            return Err(config.mismatch(heads));
        }
        spec.mixture.check(&config)?;
        config.finish()?;
        Ok(spec)
    }
}

pub fn plans(json: &Value, declared: Declared) -> Result<Vec<Plan>> {
    let spec = Spec::read(json)?;
    let (dtype, kv) = (declared.weight_type, declared.kv_element);
    let mut ops = PlanBuilder::new(declared.name, dtype, kv, spec.eps, 0.0);
    let h = ops.tokens("h", spec.hidden);
    let x = ops.tokens("x", spec.hidden);
    let q = ops.tokens("q", spec.heads * spec.head_dim);
    let k = ops.tokens("k", spec.kv_heads * spec.head_dim);
    let v = ops.tokens("v", spec.kv_heads * spec.head_dim);
    let attention = ops.tokens("attn_out", spec.heads * spec.head_dim);
    let projected = ops.tokens("proj", spec.hidden);
    let experts_out = ops.tokens("experts_out", spec.hidden);
    let mixture = spec.mixture.buffers(&mut ops, experts_out);
    let rope = ops.plan.rope(spec.rope.clone());
    ops.embed("model.embed_tokens.weight", spec.vocab, 1.0, h);
    for (layer, window) in spec.windows.iter().enumerate() {
        let name = |what: &str| format!("model.layers.{layer}.{what}");
        ops.rms_norm(&name("input_layernorm"), h, x);
        ops.linear(&name("self_attn.q_proj"), x, q, true);
        ops.linear(&name("self_attn.k_proj"), x, k, true);
        ops.linear(&name("self_attn.v_proj"), x, v, true);
        let plane = (spec.kv_heads, spec.head_dim);
        let (group, retention) = match window {
            Some(window) => ("window", Retention::Window(*window)),
            None => ("full", Retention::Full),
        };
        let kv = ops.plan.kv_layer(group, &[plane, plane], retention);
        ops.plan.push(Op::RopeKvWrite(RopeKvWrite {
            q,
            k,
            v: Some(v),
            rope: Some(rope),
            head_dim: spec.head_dim,
            rotate_from: 0,
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            kv,
        }));
        let sinks = ops.plan.weight(name("self_attn.sinks"), &[spec.heads]);
        ops.plan.push(Op::Attention(Attention {
            q,
            kv: KvSource::Paged(kv),
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            value_dim: spec.head_dim,
            values_in_keys: false,
            scale: spec.scale,
            window: *window,
            softcap: None,
            sinks: Some(sinks),
            bias: None,
            visible_to: None,
            out: attention,
        }));
        ops.linear(&name("self_attn.o_proj"), attention, projected, true);
        ops.add(h, projected);
        ops.rms_norm(&name("post_attention_layernorm"), h, x);
        let weights = experts(&mut ops, &spec, &name("mlp.experts"));
        let router = name("mlp.router");
        spec.mixture
            .push(&mut ops, mixture, &router, true, None, weights, x);
        ops.add(h, mixture.out);
        ops.plan.tap(format!("layer.{layer}.out"), h);
    }
    ops.head("model.norm", None, "lm_head.weight", spec.vocab, h);
    Ok(vec![ops.finish()])
}

/// All experts in one tensor, rows of gate and up in turn. The file's MXFP4 blocks and scales are one tensor here.
fn experts(ops: &mut PlanBuilder, spec: &Spec, name: &str) -> ExpertWeights {
    let (experts, width, hidden) = (spec.mixture.experts, spec.mixture.width, spec.hidden);
    let take = Take::EvenThenOdd;
    let gate_up = [experts, 2 * width, hidden];
    let bias = [experts, 2 * width];
    ExpertWeights {
        gate_up: ops.cut(&format!("{name}.gate_up_proj"), &gate_up, take, &gate_up),
        gate_up_bias: Some(ops.cut(&format!("{name}.gate_up_proj_bias"), &bias, take, &bias)),
        down: ops
            .plan
            .weight(format!("{name}.down_proj"), &[experts, hidden, width]),
        down_bias: Some(
            ops.plan
                .weight(format!("{name}.down_proj_bias"), &[experts, hidden]),
        ),
    }
}
