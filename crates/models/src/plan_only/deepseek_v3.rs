//! Owns DeepSeek V3: latent attention (one cached vector a token for all heads) and routed experts with a shared one.

use super::Declared;
use super::feed_forward::FeedForward;
use crate::config::Config;
use crate::error::Result;
use crate::mixture::{Mixture, PROJECTIONS};
use crate::plan_builder::PlanBuilder;
use crate::yarn::Yarn;
use mettle_plan::*;
use serde_json::Value;

pub const NAME: &str = "deepseek_v3";

struct Spec {
    vocab: usize,
    hidden: usize,
    layers: usize,
    /// Layers at the start with an ordinary feed-forward.
    dense_layers: usize,
    dense_width: usize,
    shared_width: usize,
    heads: usize,
    /// Rank of the queries' bottleneck.
    query_rank: usize,
    /// Width of the latent that stands for keys and values.
    latent: usize,
    /// Parts of a query and key head without and with rotation.
    plain: usize,
    rotary: usize,
    value: usize,
    eps: f32,
    rope: Rope,
    scale: f32,
    mixture: Mixture,
}

impl Spec {
    fn read(json: &Value) -> Result<Spec> {
        let config = Config::new("config.json", json)?;
        config.text("model_type")?;
        config.ignore(&[
            // FP8 blocks: the plan's weight type says what is counted.
            "quantization_config",
            "max_position_embeddings",
            "auto_map",
            // Training only.
            "aux_loss_alpha",
            "seq_aux",
            "ep_size",
            // The layer that predicts a second token is not part of this plan.
            "num_nextn_predict_layers",
        ]);
        config.must_be("hidden_act", "silu")?;
        config.must_be("attention_bias", false)?;
        config.must_be("tie_word_embeddings", false)?;
        config.must_be("pretraining_tp", 1)?;
        config.must_be("moe_layer_freq", 1)?;
        config.must_be("scoring_func", "sigmoid")?;
        config.must_be("topk_method", "noaux_tc")?;
        let heads = config.count("num_attention_heads")?;
        config.must_be("num_key_value_heads", heads)?;
        let rotary = config.even_count("qk_rope_head_dim")?;
        let plain = config.count("qk_nope_head_dim")?;
        let base = config.positive("rope_theta")?;
        let scaling = config.object("rope_scaling")?;
        let yarn = Yarn::read(&scaling, base, rotary)?;
        scaling.finish()?;
        let sharpening = yarn.attention_factor * yarn.all_dimensions_factor;
        let width = config.width("moe_intermediate_size")?;
        let spec = Spec {
            vocab: config.width("vocab_size")?,
            hidden: config.width("hidden_size")?,
            layers: config.layers("num_hidden_layers")?,
            dense_layers: config.size("first_k_dense_replace")?,
            dense_width: config.width("intermediate_size")?,
            shared_width: width * config.count("n_shared_experts")?,
            heads,
            query_rank: config.width("q_lora_rank")?,
            latent: config.count("kv_lora_rank")?,
            plain,
            rotary,
            value: config.count("v_head_dim")?,
            eps: config.float("rms_norm_eps")?,
            rope: Rope::new(RopeStyle::Interleaved, rotary, base, &yarn.scaling),
            scale: sharpening.powi(2) / ((plain + rotary) as f32).sqrt(),
            mixture: Mixture {
                experts: config.count("n_routed_experts")?,
                top_k: config.count("num_experts_per_tok")?,
                width,
                score: RouteScore::Sigmoid,
                normalize: config.flag_or_none("norm_topk_prob")?.unwrap_or(true),
                scale: config.float("routed_scaling_factor")?,
                groups: config.count("n_group")?,
                top_groups: config.count("topk_group")?,
                activation: Activation::Silu,
            },
        };
        spec.mixture.check(&config)?;
        spec.mixture.check_stored_one_by_one(&config, spec.layers)?;
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
    let projected = ops.tokens("proj", spec.hidden);
    let latent = LatentBuffers::new(&spec, &mut ops);
    let dense = FeedForward::new(&mut ops, "dense", spec.dense_width, projected);
    let experts_out = ops.tokens("experts_out", spec.hidden);
    let mixture = spec.mixture.buffers(&mut ops, experts_out);
    let shared = FeedForward::new(&mut ops, "shared", spec.shared_width, projected);
    ops.embed("model.embed_tokens.weight", spec.vocab, 1.0, h);
    for layer in 0..spec.layers {
        let name = |what: &str| format!("model.layers.{layer}.{what}");
        ops.rms_norm(&name("input_layernorm"), h, x);
        latent.push(&spec, &mut ops, &name("self_attn"), x, projected);
        ops.add(h, projected);
        ops.rms_norm(&name("post_attention_layernorm"), h, x);
        if layer < spec.dense_layers {
            dense.push(&mut ops, &name("mlp"), x);
        } else {
            let weights =
                spec.mixture
                    .stored_one_by_one(&mut ops, &name("mlp"), PROJECTIONS, spec.hidden);
            let choice = name("mlp.gate.e_score_correction_bias");
            let choice = ops.plan.weight(choice, &[spec.mixture.experts]);
            let router = name("mlp.gate");
            spec.mixture
                .push(&mut ops, mixture, &router, false, Some(choice), weights, x);
            ops.add(h, mixture.out);
            shared.push(&mut ops, &name("mlp.shared_experts"), x);
        }
        ops.add(h, projected);
        ops.plan.tap(format!("layer.{layer}.out"), h);
    }
    ops.head("model.norm", None, "lm_head.weight", spec.vocab, h);
    Ok(vec![ops.finish()])
}

/// Latent attention with both up-projections absorbed: queries are brought into the latent's space, results back.
struct LatentBuffers {
    query_rank: Slice,
    query_plain: Slice,
    query_rotary: Slice,
    query_latent: Slice,
    /// Per head: the query in the latent's space, then its rotated part.
    q: Slice,
    /// The latent, then the rotated key all heads share.
    k: Slice,
    attended: Slice,
    values: Slice,
}

impl LatentBuffers {
    fn new(spec: &Spec, ops: &mut PlanBuilder) -> LatentBuffers {
        let heads = spec.heads;
        LatentBuffers {
            query_rank: ops.tokens("q_rank", spec.query_rank),
            query_plain: ops.tokens("q_plain", heads * spec.plain),
            query_rotary: ops.tokens("q_rotary", heads * spec.rotary),
            query_latent: ops.tokens("q_latent", heads * spec.latent),
            q: ops.tokens("q", heads * (spec.latent + spec.rotary)),
            k: ops.tokens("k", spec.latent + spec.rotary),
            attended: ops.tokens("attn_latent", heads * spec.latent),
            values: ops.tokens("attn_out", heads * spec.value),
        }
    }

    fn push(&self, spec: &Spec, ops: &mut PlanBuilder, name: &str, x: Slice, out: Slice) {
        let heads = spec.heads;
        ops.linear(&format!("{name}.q_a_proj"), x, self.query_rank, false);
        let norm = format!("{name}.q_a_layernorm");
        ops.rms_norm(&norm, self.query_rank, self.query_rank);
        self.queries(spec, ops, name);
        let down = format!("{name}.kv_a_proj_with_mqa");
        ops.linear(&down, x, self.k, false);
        let latent = self.k.columns(0, spec.latent);
        ops.rms_norm(&format!("{name}.kv_a_layernorm"), latent, latent);
        let head_dim = spec.latent + spec.rotary;
        let kv = ops
            .plan
            .kv_layer("latent", &[(1, head_dim)], Retention::Full);
        let rope = ops.plan.rope(spec.rope.clone());
        ops.plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: self.q,
            k: self.k,
            v: None,
            rope: Some(rope),
            head_dim,
            rotate_from: spec.latent,
            heads,
            kv_heads: 1,
            kv,
        }));
        ops.plan.push(Op::Attention(Attention {
            q: self.q,
            kv: KvSource::Paged(kv),
            heads,
            kv_heads: 1,
            head_dim,
            value_dim: spec.latent,
            values_in_keys: true,
            scale: spec.scale,
            window: None,
            softcap: None,
            sinks: None,
            bias: None,
            visible_to: None,
            out: self.attended,
        }));
        let values = Take::Rows {
            start: spec.plain,
            count: spec.value,
            period: spec.plain + spec.value,
        };
        let shape = [heads, spec.value, spec.latent];
        let up = self.up_projection(spec, ops, name, values, &shape);
        ops.linear_of(up, None, heads, self.attended, self.values);
        ops.linear(&format!("{name}.o_proj"), self.values, out, false);
    }

    fn queries(&self, spec: &Spec, ops: &mut PlanBuilder, name: &str) {
        let heads = spec.heads;
        let tensor = format!("{name}.q_b_proj.weight");
        let period = spec.plain + spec.rotary;
        let of = [heads * period, spec.query_rank];
        let mut part = |start, count, out: Slice| {
            let take = Take::Rows {
                start,
                count,
                period,
            };
            let weight = ops.cut(&tensor, &of, take, &[out.width, spec.query_rank]);
            ops.linear_of(weight, None, 1, self.query_rank, out);
        };
        part(0, spec.plain, self.query_plain);
        part(spec.plain, spec.rotary, self.query_rotary);
        let keys = Take::RowsTransposed {
            start: 0,
            count: spec.plain,
            period: spec.plain + spec.value,
        };
        let shape = [heads, spec.latent, spec.plain];
        let up = self.up_projection(spec, ops, name, keys, &shape);
        ops.linear_of(up, None, heads, self.query_plain, self.query_latent);
        for (x, width, out_from) in [
            (self.query_latent, spec.latent, 0),
            (self.query_rotary, spec.rotary, spec.latent),
        ] {
            ops.plan.push(Op::HeadCopy(HeadCopy {
                x,
                out: self.q,
                heads,
                width,
                x_from: 0,
                out_from,
            }));
        }
    }

    /// One tensor holds every head's up-projection of keys and of values.
    fn up_projection(
        &self,
        spec: &Spec,
        ops: &mut PlanBuilder,
        name: &str,
        take: Take,
        shape: &[usize],
    ) -> WeightId {
        let of = [spec.heads * (spec.plain + spec.value), spec.latent];
        ops.cut(&format!("{name}.kv_b_proj.weight"), &of, take, shape)
    }
}
