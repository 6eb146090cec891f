//! Owns BERT's ops: embeddings of words, positions and the first type, then layers with a norm behind each half.

use crate::bert::BertSpec;
use crate::bert_names::{BertLinear, BertNorm};
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;
use mettle_tensor::DType;

impl BertSpec {
    pub fn plan(&self, name: &str, weight_type: DType, kv_element: KvElement) -> Plan {
        let mut ops = PlanBuilder::new(name, weight_type, kv_element, self.eps, 0.0);
        let mut tokens = |name: &str, width| ops.tokens(name, width);
        let mut encoder = Encoder {
            spec: self,
            h: tokens("h", self.hidden),
            x: tokens("x", self.hidden),
            q: tokens("q", self.hidden),
            k: tokens("k", self.hidden),
            v: tokens("v", self.hidden),
            attention: tokens("attn_out", self.hidden),
            projected: tokens("proj", self.hidden),
            wide: tokens("ffn_act", self.intermediate),
            ops,
        };
        encoder.embed();
        for layer in 0..self.layers {
            encoder.attend(layer);
            encoder.feed_forward(layer);
        }
        let mut plan = encoder.output();
        plan.unread = self.names.unread();
        plan
    }
}

/// What a half of a layer reads is what it adds to: `x` of the first, `h` of the second. The norm behind goes from one to
/// the other.
struct Encoder<'a> {
    spec: &'a BertSpec,
    h: Slice,
    x: Slice,
    q: Slice,
    k: Slice,
    v: Slice,
    attention: Slice,
    projected: Slice,
    wide: Slice,
    ops: PlanBuilder,
}

impl Encoder<'_> {
    fn embed(&mut self) {
        let (spec, h, places) = (self.spec, self.h, self.projected);
        self.ops.embed(&spec.names.words(), spec.vocab, 1.0, h);
        let plan = &mut self.ops.plan;
        let positions = plan.input("positions", Dim::Tokens, 1, Element::U32);
        plan.positions = Some(positions);
        let table = [spec.context_length, spec.hidden];
        let table = plan.weight(spec.names.positions(), &table);
        plan.push(Op::Embed(Embed {
            ids: positions,
            table,
            out: places,
            scale: 1.0,
        }));
        self.ops.add(h, places);
        let types = [spec.token_types, spec.hidden];
        let types = self.ops.plan.weight(spec.names.token_types(), &types);
        self.ops.elementwise(Expr::AddRow(types), h, None, h);
        self.norm(spec.names.embedding_norm(), h, self.x);
        self.ops.plan.tap("embed_norm", self.x);
    }

    fn attend(&mut self, layer: usize) {
        let (spec, x) = (self.spec, self.x);
        let qkv = [
            (BertLinear::Query, self.q),
            (BertLinear::Key, self.k),
            (BertLinear::Value, self.v),
        ];
        for (linear, out) in qkv {
            self.linear(layer, linear, x, out);
        }
        let head_dim = spec.hidden / spec.heads;
        self.ops.plan.push(Op::Attention(Attention {
            q: self.q,
            kv: KvSource::Rows {
                k: self.k,
                v: self.v,
                segments: None,
            },
            heads: spec.heads,
            kv_heads: spec.heads,
            head_dim,
            value_dim: head_dim,
            values_in_keys: false,
            scale: (head_dim as f32).sqrt().recip(),
            window: None,
            softcap: None,
            sinks: None,
            bias: None,
            visible_to: None,
            out: self.attention,
        }));
        let tap = format!("layer.{layer}.attn_out");
        self.ops.plan.tap(tap, self.attention);
        self.linear(layer, BertLinear::Output, self.attention, self.projected);
        self.ops.add(x, self.projected);
        self.norm(spec.names.norm(layer, BertNorm::Attention), x, self.h);
        self.ops
            .plan
            .tap(format!("layer.{layer}.attn_norm"), self.h);
    }

    fn feed_forward(&mut self, layer: usize) {
        let (spec, h, wide) = (self.spec, self.h, self.wide);
        self.linear(layer, BertLinear::Up, h, wide);
        let activation = Expr::Apply(spec.activation);
        self.ops.elementwise(activation, wide, None, wide);
        self.ops.plan.tap(format!("layer.{layer}.ffn_act"), wide);
        self.linear(layer, BertLinear::Down, wide, self.projected);
        self.ops.add(h, self.projected);
        self.norm(spec.names.norm(layer, BertNorm::FeedForward), h, self.x);
        self.ops.plan.tap(format!("layer.{layer}.out"), self.x);
    }

    fn linear(&mut self, layer: usize, linear: BertLinear, x: Slice, out: Slice) {
        let name = self.spec.names.linear(layer, linear);
        self.ops.linear(&name, x, out, true);
    }

    fn norm(&mut self, [weight, bias]: [String; 2], x: Slice, out: Slice) {
        let plan = &mut self.ops.plan;
        let (weight, bias) = (
            plan.weight(weight, &[x.width]),
            plan.weight(bias, &[x.width]),
        );
        plan.push(Op::LayerNorm(LayerNorm {
            x,
            weight,
            bias: Some(bias),
            eps: self.spec.eps,
            out,
        }));
    }

    /// The rows that are asked for; there is no head.
    fn output(mut self) -> Plan {
        let plan = &mut self.ops.plan;
        let rows = plan.input("logit_rows", Dim::LogitRows, 1, Element::U32);
        plan.logit_rows = Some(rows);
        let hidden = plan.buffer("hidden", Dim::LogitRows, self.spec.hidden);
        plan.push(Op::Gather(Gather {
            x: self.x,
            rows,
            out: hidden,
        }));
        plan.tap("hidden", hidden);
        plan.hidden = Some(plan.mark_output(hidden));
        self.ops.finish()
    }
}
