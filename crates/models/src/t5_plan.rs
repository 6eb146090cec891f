//! Owns T5's ops: an encoder that sees all its tokens and fills the cross-attention cache, and a decoder that reads it.

use crate::plan_builder::PlanBuilder;
use crate::t5::T5Spec;
use crate::t5_names::{Part, Tensor};
use mettle_plan::*;
use mettle_tensor::DType;

impl T5Spec {
    /// The decoder's plan, then the encoder's. Both declare the same KV groups, so one pool serves both.
    pub fn plans(&self, name: &str, weight_type: DType, kv_element: KvElement) -> Vec<Plan> {
        let stack = |part| Stack::new(self, name, weight_type, kv_element, part);
        vec![decoder(stack(Part::Decoder)), encoder(stack(Part::Encoder))]
    }
}

/// One half of the model under way: its scratch, and where every decoder layer's own and cross-attention caches are.
struct Stack<'a> {
    spec: &'a T5Spec,
    part: Part,
    ops: PlanBuilder,
    own: Vec<KvLayer>,
    cross: Vec<KvLayer>,
    h: Slice,
    x: Slice,
    q: Slice,
    k: Slice,
    v: Slice,
    attention: Slice,
    projected: Slice,
    /// Gate, up and their product; or the only one.
    wide: Vec<Slice>,
}

impl<'a> Stack<'a> {
    fn new(
        spec: &'a T5Spec,
        name: &str,
        weight_type: DType,
        kv_element: KvElement,
        part: Part,
    ) -> Stack<'a> {
        let name = match part {
            Part::Encoder => format!("{name} encoder"),
            Part::Decoder => format!("{name} decoder"),
        };
        let mut ops = PlanBuilder::new(&name, weight_type, kv_element, spec.eps, 0.0);
        let plane = (spec.heads, spec.head_dim);
        let mut caches = |name: &str, retention| -> Vec<KvLayer> {
            let layers = 0..spec.decoder_layers;
            let layer = |_| ops.plan.kv_layer(name, &[plane, plane], retention);
            layers.map(layer).collect()
        };
        let own = caches("self", Retention::Full);
        let cross = caches("cross", Retention::Encoder);
        let inner = spec.heads * spec.head_dim;
        let wide: &[&str] = match spec.gated {
            true => &["gate", "up", "act"],
            false => &["act"],
        };
        Stack {
            spec,
            part,
            own,
            cross,
            h: ops.tokens("h", spec.hidden),
            x: ops.tokens("x", spec.hidden),
            q: ops.tokens("q", inner),
            k: ops.tokens("k", inner),
            v: ops.tokens("v", inner),
            attention: ops.tokens("attn_out", inner),
            projected: ops.tokens("proj", spec.hidden),
            wide: wide
                .iter()
                .map(|name| ops.tokens(name, spec.width))
                .collect(),
            ops,
        }
    }

    fn name(&self, layer: usize, tensor: Tensor) -> String {
        self.spec.names.layer(self.part, layer, tensor)
    }

    fn embed(&mut self) {
        let (table, vocab) = (&self.spec.embedding, self.spec.vocab);
        self.ops.embed(table, vocab, 1.0, self.h);
    }

    fn norm(&mut self, layer: usize, tensor: Tensor) {
        let name = self.name(layer, tensor);
        self.ops.rms_norm(&name, self.h, self.x);
    }

    fn linear(&mut self, layer: usize, tensor: Tensor, x: Slice, out: Slice) {
        let name = self.name(layer, tensor);
        self.ops.linear(&name, x, out, false);
    }

    fn queries_keys_values(&mut self, layer: usize) {
        for (which, out) in [("q", self.q), ("k", self.k), ("v", self.v)] {
            self.linear(layer, Tensor::Attention(which), self.x, out);
        }
    }

    /// T5 scales no scores: its initialization did.
    fn attend(&mut self, kv: KvSource) {
        let spec = self.spec;
        let shape = [spec.buckets, spec.heads];
        let weight = self.ops.plan.weight(spec.names.bias(self.part), &shape);
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
                bidirectional: self.part == Part::Encoder,
            }),
            visible_to: None,
            out: self.attention,
        }));
    }

    /// Keys and values as they are; queries besides, where they have the same rows.
    fn write(&mut self, kv: KvLayer, heads: usize) {
        self.ops.plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: self.q.columns(0, heads * self.spec.head_dim),
            k: self.k,
            v: Some(self.v),
            rope: None,
            head_dim: self.spec.head_dim,
            rotate_from: 0,
            heads,
            kv_heads: self.spec.heads,
            kv,
        }));
    }

    fn add_projected(&mut self, layer: usize, tensor: Tensor, x: Slice) {
        self.linear(layer, tensor, x, self.projected);
        self.ops.add(self.h, self.projected);
    }

    fn feed_forward(&mut self, layer: usize) {
        self.norm(layer, Tensor::FeedForwardNorm);
        let out = match self.wide[..] {
            [gate, up, out] => {
                self.linear(layer, Tensor::Gate, self.x, gate);
                self.linear(layer, Tensor::Up, self.x, up);
                self.ops.gated(gate, up, Activation::GeluTanh, out);
                out
            }
            _ => {
                let out = self.wide[0];
                let relu = Expr::Apply(Activation::Relu);
                self.linear(layer, Tensor::Wide, self.x, out);
                self.ops.elementwise(relu, out, None, out);
                out
            }
        };
        self.add_projected(layer, Tensor::Down, out);
        self.ops.plan.tap(format!("layer.{layer}.out"), self.h);
    }

    fn finish(self) -> Plan {
        let mut plan = self.ops.finish();
        plan.unread.extend(self.spec.unread.iter().cloned());
        plan
    }
}

fn encoder(mut s: Stack) -> Plan {
    s.embed();
    let (k, v) = (s.k, s.v);
    for layer in 0..s.spec.encoder_layers {
        s.norm(layer, Tensor::AttentionNorm);
        s.queries_keys_values(layer);
        s.attend(KvSource::Rows {
            k,
            v,
            segments: None,
        });
        s.add_projected(layer, Tensor::Attention("o"), s.attention);
        s.feed_forward(layer);
    }
    s.ops
        .rms_norm(s.spec.names.final_norm(Part::Encoder), s.h, s.x);
    s.ops.plan.tap("encoded", s.x);
    for (layer, kv) in s.cross.clone().into_iter().enumerate() {
        for (which, out) in [("k", k), ("v", v)] {
            let names = s.spec.names;
            let name = names.layer(Part::Decoder, layer, Tensor::Cross(which));
            s.ops.linear(&name, s.x, out, false);
        }
        s.write(kv, 0);
    }
    s.finish()
}

fn decoder(mut s: Stack) -> Plan {
    let spec = s.spec;
    s.embed();
    for layer in 0..spec.decoder_layers {
        s.norm(layer, Tensor::AttentionNorm);
        s.queries_keys_values(layer);
        s.write(s.own[layer], spec.heads);
        s.attend(KvSource::Paged(s.own[layer]));
        s.add_projected(layer, Tensor::Attention("o"), s.attention);
        s.norm(layer, Tensor::CrossNorm);
        s.linear(layer, Tensor::Cross("q"), s.x, s.q);
        s.ops.plan.push(Op::CrossAttention(CrossAttention {
            q: s.q,
            kv: s.cross[layer],
            heads: spec.heads,
            head_dim: spec.head_dim,
            scale: 1.0,
            out: s.attention,
        }));
        s.add_projected(layer, Tensor::Cross("o"), s.attention);
        s.feed_forward(layer);
    }
    let weight = match spec.own_head {
        true => spec.names.head(),
        false => &spec.embedding,
    };
    let scale = spec
        .scaled_head
        .then(|| (spec.hidden as f32).sqrt().recip());
    let norm = spec.names.final_norm(Part::Decoder);
    s.ops.head(norm, scale, weight, spec.vocab, s.h);
    s.finish()
}
