//! Owns T5: an encoder that sees all its tokens and fills the cross-attention cache, and a decoder that reads it.

use super::Declared;
use crate::config::Config;
use crate::error::Result;
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;
use serde_json::Value;

pub const NAME: &str = "t5";

struct Spec {
    vocab: usize,
    hidden: usize,
    heads: usize,
    head_dim: usize,
    width: usize,
    encoder_layers: usize,
    decoder_layers: usize,
    buckets: usize,
    max_distance: usize,
    eps: f32,
    /// Flan and v1.1: GELU and a gate; the first T5: ReLU alone.
    gated: bool,
    tied: bool,
}

impl Spec {
    /// The keys that older files lack have transformers' defaults: a greatest distance of 128, a tied head.
    fn read(json: &Value) -> Result<Spec> {
        let config = Config::new("config.json", json)?;
        config.text("model_type")?;
        config.ignore(&["n_positions", "output_past", "is_decoder"]);
        config.must_be("is_encoder_decoder", true)?;
        let gated = match config.text("feed_forward_proj")? {
            "relu" => false,
            "gated-gelu" => true,
            _ => return Err(config.unsupported("feed_forward_proj", "relu and gated-gelu are")),
        };
        config.must_be("is_gated_act", gated)?;
        config.must_be("dense_act_fn", if gated { "gelu_new" } else { "relu" })?;
        let layers = config.layers("num_layers")?;
        let decoder_layers = config.size_or_none("num_decoder_layers")?;
        let max_distance = config.size_or_none("relative_attention_max_distance")?;
        let tied = config.flag_or_none("tie_word_embeddings")?.unwrap_or(true);
        config.must_be("scale_decoder_outputs", tied)?;
        let spec = Spec {
            vocab: config.width("vocab_size")?,
            hidden: config.width("d_model")?,
            heads: config.count("num_heads")?,
            head_dim: config.count("d_kv")?,
            width: config.width("d_ff")?,
            encoder_layers: layers,
            decoder_layers: match decoder_layers {
                Some(_) => config.layers("num_decoder_layers")?,
                None => layers,
            },
            buckets: config.count("relative_attention_num_buckets")?,
            max_distance: max_distance.unwrap_or(128),
            eps: config.float("layer_norm_epsilon")?,
            gated,
            tied,
        };
        config.finish()?;
        Ok(spec)
    }
}

/// The encoder's plan, then the decoder's. Both declare the same KV groups, so one pool serves both.
pub fn plans(json: &Value, declared: Declared) -> Result<Vec<Plan>> {
    let spec = Spec::read(json)?;
    Ok(vec![encoder(&spec, declared), decoder(&spec, declared)])
}

/// Where every decoder layer's own and cross-attention caches are.
struct Caches {
    own: Vec<KvLayer>,
    cross: Vec<KvLayer>,
}

impl Caches {
    fn new(spec: &Spec, plan: &mut Plan) -> Caches {
        let plane = (spec.heads, spec.head_dim);
        let mut group = |name: &str, retention| {
            (0..spec.decoder_layers)
                .map(|_| plan.kv_layer(name, &[plane, plane], retention))
                .collect()
        };
        Caches {
            own: group("self", Retention::Full),
            cross: group("cross", Retention::Encoder),
        }
    }
}

/// A stack's scratch, over encoder or decoder tokens.
struct Stack<'a> {
    spec: &'a Spec,
    ops: PlanBuilder,
    rows: Dim,
    h: Slice,
    x: Slice,
    q: Slice,
    k: Slice,
    v: Slice,
    attention: Slice,
    projected: Slice,
}

impl<'a> Stack<'a> {
    fn new(spec: &'a Spec, declared: Declared, part: &str, rows: Dim) -> Stack<'a> {
        let name = format!("{} {part}", declared.name);
        let (dtype, kv) = (declared.weight_type, declared.kv_element);
        let mut ops = PlanBuilder::new(&name, dtype, kv, spec.eps, 0.0);
        let inner = spec.heads * spec.head_dim;
        let mut buffer = |name: &str, width| ops.plan.buffer(name, rows, width);
        Stack {
            spec,
            rows,
            h: buffer("h", spec.hidden),
            x: buffer("x", spec.hidden),
            q: buffer("q", inner),
            k: buffer("k", inner),
            v: buffer("v", inner),
            attention: buffer("attn_out", inner),
            projected: buffer("proj", spec.hidden),
            ops,
        }
    }

    fn qkv(&mut self, name: &str) {
        for (what, out) in [("q", self.q), ("k", self.k), ("v", self.v)] {
            self.ops
                .linear(&format!("{name}.{what}"), self.x, out, false);
        }
    }

    /// T5 scales nothing: its initialization did.
    fn attend(&mut self, kv: KvSource, bias_tensor: &str, bidirectional: bool) {
        let spec = self.spec;
        let weight = self
            .ops
            .plan
            .weight(bias_tensor, &[spec.buckets, spec.heads]);
        self.ops.plan.push(Op::Attention(Attention {
            q: self.q,
            kv,
            heads: spec.heads,
            kv_heads: spec.heads,
            head_dim: spec.head_dim,
            value_dim: spec.head_dim,
            values_in_keys: false,
            scale: 1.0,
            window: None,
            softcap: None,
            sinks: None,
            bias: Some(RelativeBias {
                weight,
                buckets: spec.buckets,
                max_distance: spec.max_distance,
                bidirectional,
            }),
            visible_to: None,
            out: self.attention,
        }));
    }

    fn project(&mut self, name: &str) {
        let (x, out) = (self.attention, self.projected);
        self.ops.linear(&format!("{name}.o"), x, out, false);
        self.ops.add(self.h, out);
    }

    fn feed_forward(&mut self, name: &str, wide: &[Slice]) {
        let name = |what: &str| format!("{name}.DenseReluDense.{what}");
        let out = match *wide {
            [gate, up, out] => {
                self.ops.linear(&name("wi_0"), self.x, gate, false);
                self.ops.linear(&name("wi_1"), self.x, up, false);
                self.ops.gated(gate, up, Activation::GeluTanh, out);
                out
            }
            _ => {
                let relu = Expr::Apply(Activation::Relu);
                self.ops.linear(&name("wi"), self.x, wide[0], false);
                self.ops.elementwise(relu, wide[0], None, wide[0]);
                wide[0]
            }
        };
        self.ops.linear(&name("wo"), out, self.projected, false);
        self.ops.add(self.h, self.projected);
    }

    fn wide(&mut self) -> Vec<Slice> {
        let names: &[&str] = match self.spec.gated {
            true => &["gate", "up", "act"],
            false => &["act"],
        };
        let (plan, rows, width) = (&mut self.ops.plan, self.rows, self.spec.width);
        let buffers = names.iter().map(|name| plan.buffer(*name, rows, width));
        buffers.collect()
    }
}

fn encoder(spec: &Spec, declared: Declared) -> Plan {
    let mut s = Stack::new(spec, declared, "encoder", Dim::EncoderTokens);
    let wide = s.wide();
    let caches = Caches::new(spec, &mut s.ops.plan);
    // Inputs of several sequences share a step; a token sees its own input only.
    let segments = Some(s.ops.plan.input("segments", s.rows, 1, Element::U32));
    let (k, v) = (s.k, s.v);
    let kv = KvSource::Rows { k, v, segments };
    s.ops.embed("shared.weight", spec.vocab, 1.0, s.h);
    let bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    for block in 0..spec.encoder_layers {
        let name = |layer: usize, what: &str| format!("encoder.block.{block}.layer.{layer}{what}");
        s.ops.rms_norm(&name(0, ".layer_norm"), s.h, s.x);
        s.qkv(&name(0, ".SelfAttention"));
        s.attend(kv, bias, true);
        s.project(&name(0, ".SelfAttention"));
        s.ops.rms_norm(&name(1, ".layer_norm"), s.h, s.x);
        s.feed_forward(&name(1, ""), &wide);
        s.ops.plan.tap(format!("layer.{block}.out"), s.h);
    }
    s.ops.rms_norm("encoder.final_layer_norm", s.h, s.x);
    s.ops.plan.tap("encoded", s.x);
    for (block, kv) in caches.cross.iter().enumerate() {
        let name = |what: &str| format!("decoder.block.{block}.layer.1.EncDecAttention.{what}");
        s.ops.linear(&name("k"), s.x, s.k, false);
        s.ops.linear(&name("v"), s.x, s.v, false);
        s.ops.plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: s.k.columns(0, 0),
            k: s.k,
            v: Some(s.v),
            rope: None,
            head_dim: spec.head_dim,
            rotate_from: 0,
            heads: 0,
            kv_heads: spec.heads,
            kv: *kv,
        }));
    }
    s.ops.finish()
}

fn decoder(spec: &Spec, declared: Declared) -> Plan {
    let mut s = Stack::new(spec, declared, "decoder", Dim::Tokens);
    let wide = s.wide();
    let caches = Caches::new(spec, &mut s.ops.plan);
    s.ops.embed("shared.weight", spec.vocab, 1.0, s.h);
    let bias = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    for block in 0..spec.decoder_layers {
        let name = |layer: usize, what: &str| format!("decoder.block.{block}.layer.{layer}{what}");
        let kv = caches.own[block];
        s.ops.rms_norm(&name(0, ".layer_norm"), s.h, s.x);
        s.qkv(&name(0, ".SelfAttention"));
        s.ops.plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: s.q,
            k: s.k,
            v: Some(s.v),
            rope: None,
            head_dim: spec.head_dim,
            rotate_from: 0,
            heads: spec.heads,
            kv_heads: spec.heads,
            kv,
        }));
        s.attend(KvSource::Paged(kv), bias, false);
        s.project(&name(0, ".SelfAttention"));
        s.ops.rms_norm(&name(1, ".layer_norm"), s.h, s.x);
        s.ops
            .linear(&name(1, ".EncDecAttention.q"), s.x, s.q, false);
        s.ops.plan.push(Op::CrossAttention(CrossAttention {
            q: s.q,
            kv: caches.cross[block],
            heads: spec.heads,
            head_dim: spec.head_dim,
            scale: 1.0,
            out: s.attention,
        }));
        s.project(&name(1, ".EncDecAttention"));
        s.ops.rms_norm(&name(2, ".layer_norm"), s.h, s.x);
        s.feed_forward(&name(2, ""), &wide);
        s.ops.plan.tap(format!("layer.{block}.out"), s.h);
    }
    let (weight, scale) = match spec.tied {
        true => ("shared.weight", Some((spec.hidden as f32).sqrt().recip())),
        false => ("lm_head.weight", None),
    };
    let norm = "decoder.final_layer_norm";
    s.ops.head(norm, scale, weight, spec.vocab, s.h);
    s.ops.finish()
}
