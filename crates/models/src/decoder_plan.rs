//! Owns the ops of a dense pre-norm decoder: from its dimensions to a plan. Passes fuse what is written plainly here.

use crate::decoder::DecoderSpec;
use crate::mixture_layers::{MixtureLayerBuffers, MixtureLayers};
use crate::names::LayerTensor;
use crate::plan_builder::PlanBuilder;
use crate::variant::Variant;
use mettle_plan::*;
use mettle_tensor::DType;

impl DecoderSpec {
    pub fn plan(&self, name: &str, weight_type: DType, kv_element: KvElement) -> Plan {
        self.plan_of(name, weight_type, kv_element, &Variant::Plain)
    }

    pub(crate) fn plan_of(
        &self,
        name: &str,
        weight_type: DType,
        kv_element: KvElement,
        variant: &Variant,
    ) -> Plan {
        let mut ops = PlanBuilder::new(name, weight_type, kv_element, self.eps, 0.0);
        let ranks = variant.ranks();
        let buffers = Buffers::new(self, ranks, &mut ops);
        let mixture = self
            .mixture
            .as_ref()
            .map(|m| (m, m.buffers(&mut ops, buffers.projected)));
        let mut decoder = Decoder {
            spec: self,
            variant,
            heads: self.heads / ranks,
            kv_heads: self.kv_heads / ranks,
            buffers,
            mixture,
            adapter_index: variant.adapter_index(&mut ops.plan),
            ops,
        };
        let h = decoder.buffers.h;
        decoder
            .ops
            .embed(self.names.embedding(), self.vocab, 1.0, h);
        for layer in 0..self.layers {
            decoder.attention(layer);
            decoder.feed_forward(layer);
        }
        let head = match self.tied {
            true => self.names.embedding(),
            false => self.names.head(),
        };
        let norm = self.names.final_norm();
        decoder.ops.head(norm, None, head, self.vocab, h);
        let mut plan = decoder.ops.finish();
        plan.unread.extend(self.unread.iter().cloned());
        plan
    }
}

/// Scratch that all layers use in turn.
#[derive(Clone, Copy)]
struct Buffers {
    /// The residual stream.
    h: Slice,
    x: Slice,
    q: Slice,
    k: Slice,
    v: Slice,
    attention: Slice,
    /// What a layer's half adds to the residual stream.
    projected: Slice,
    gate: Slice,
    up: Slice,
    activated: Slice,
}

impl Buffers {
    fn new(spec: &DecoderSpec, ranks: usize, ops: &mut PlanBuilder) -> Buffers {
        let q = spec.heads * spec.head_dim / ranks;
        let kv = spec.kv_heads * spec.head_dim / ranks;
        let intermediate = spec.intermediate / ranks;
        Buffers {
            h: ops.tokens("h", spec.hidden),
            x: ops.tokens("x", spec.hidden),
            q: ops.tokens("q", q),
            k: ops.tokens("k", kv),
            v: ops.tokens("v", kv),
            attention: ops.tokens("attn_out", q),
            projected: ops.tokens("proj", spec.hidden),
            gate: ops.tokens("gate", intermediate),
            up: ops.tokens("up", intermediate),
            activated: ops.tokens("ffn_act", intermediate),
        }
    }
}

struct Decoder<'a> {
    spec: &'a DecoderSpec,
    variant: &'a Variant,
    /// Of this rank.
    heads: usize,
    kv_heads: usize,
    buffers: Buffers,
    mixture: Option<(&'a MixtureLayers, MixtureLayerBuffers)>,
    adapter_index: Option<Slice>,
    ops: PlanBuilder,
}

impl Decoder<'_> {
    fn attention(&mut self, layer: usize) {
        let (spec, b) = (self.spec, self.buffers);
        let bias = spec.biases.qkv;
        self.norm(layer, LayerTensor::AttentionNorm, "attn_norm");
        self.linear(layer, LayerTensor::Query, b.x, b.q, bias);
        self.linear(layer, LayerTensor::Key, b.x, b.k, bias);
        self.linear(layer, LayerTensor::Value, b.x, b.v, bias);
        if spec.qk_norm {
            let (q, k) = (LayerTensor::QueryNorm, LayerTensor::KeyNorm);
            let name = |tensor| spec.names.layer(layer, tensor);
            self.ops.head_norm(&name(q), b.q, self.heads, 0.0);
            self.ops.head_norm(&name(k), b.k, self.kv_heads, 0.0);
        }
        self.rotate_and_attend(layer);
        let output = LayerTensor::Output;
        self.linear(layer, output, b.attention, b.projected, spec.biases.output);
        self.add_to_stream();
        self.ops
            .plan
            .tap(format!("layer.{layer}.attn_residual"), b.h);
    }

    fn rotate_and_attend(&mut self, layer: usize) {
        let (spec, b) = (self.spec, self.buffers);
        let plan = &mut self.ops.plan;
        let rope = plan.rope(Rope::new(
            spec.rope_style,
            spec.head_dim,
            spec.rope_base,
            &spec.rope_scaling,
        ));
        let plane = (self.kv_heads, spec.head_dim);
        let kv = plan.kv_layer("full", &[plane, plane], Retention::Full);
        plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: b.q,
            k: b.k,
            v: Some(b.v),
            rope: Some(rope),
            head_dim: spec.head_dim,
            rotate_from: 0,
            heads: self.heads,
            kv_heads: self.kv_heads,
            kv,
        }));
        plan.tap(format!("layer.{layer}.q"), b.q);
        plan.push(Op::Attention(Attention {
            q: b.q,
            kv: KvSource::Paged(kv),
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: spec.head_dim,
            value_dim: spec.head_dim,
            values_in_keys: false,
            scale: (spec.head_dim as f32).sqrt().recip(),
            window: None,
            softcap: None,
            sinks: None,
            bias: None,
            visible_to: None,
            out: b.attention,
        }));
        plan.tap(format!("layer.{layer}.attn_out"), b.attention);
    }

    fn feed_forward(&mut self, layer: usize) {
        self.norm(layer, LayerTensor::FeedForwardNorm, "ffn_norm");
        match self.mixture {
            Some((mixture, b)) if mixture.is_mixture(layer) => {
                mixture.push(&mut self.ops, b, layer, self.buffers.x);
            }
            _ => self.dense(layer),
        }
        self.add_to_stream();
        self.ops
            .plan
            .tap(format!("layer.{layer}.out"), self.buffers.h);
    }

    fn dense(&mut self, layer: usize) {
        let b = self.buffers;
        let bias = self.spec.biases.feed_forward;
        self.linear(layer, LayerTensor::Gate, b.x, b.gate, bias);
        self.linear(layer, LayerTensor::Up, b.x, b.up, bias);
        self.ops.gated(b.gate, b.up, Activation::Silu, b.activated);
        self.ops
            .plan
            .tap(format!("layer.{layer}.ffn_act"), b.activated);
        self.linear(layer, LayerTensor::Down, b.activated, b.projected, bias);
    }

    fn norm(&mut self, layer: usize, tensor: LayerTensor, tap: &str) {
        let name = self.spec.names.layer(layer, tensor);
        let (h, x) = (self.buffers.h, self.buffers.x);
        self.ops.rms_norm(&name, h, x);
        self.ops.plan.tap(format!("layer.{layer}.{tap}"), x);
    }

    fn linear(&mut self, layer: usize, tensor: LayerTensor, x: Slice, out: Slice, bias: bool) {
        let name = self.spec.names.layer(layer, tensor);
        match self.variant {
            Variant::Plain => self.ops.linear(&name, x, out, bias),
            Variant::Adapters(slots) => {
                self.ops.linear(&name, x, out, bias);
                let index = self.adapter_index.expect("made with the variant");
                slots.adapt_last(&mut self.ops.plan, &name, index);
            }
            Variant::Share(share) => share.linear(&mut self.ops, &name, tensor, x, out),
        }
    }

    fn add_to_stream(&mut self) {
        let (h, projected) = (self.buffers.h, self.buffers.projected);
        if let Variant::Share(share) = self.variant {
            let (x, ranks) = (projected, share.ranks);
            self.ops.plan.push(Op::AllReduce(AllReduce { x, ranks }));
        }
        self.ops.add(h, projected);
    }
}
