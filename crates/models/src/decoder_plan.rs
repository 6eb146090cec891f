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
        let offset = self.features.norm_offset;
        let mut ops = PlanBuilder::new(name, weight_type, kv_element, self.eps, offset);
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
            caches: Vec::new(),
            ops,
        };
        let h = decoder.buffers.h;
        let embedding = self.names.embedding();
        let scale = self.features.embedding_scale;
        decoder.ops.embed(&embedding, self.vocab, scale, h);
        for layer in 0..self.layers {
            decoder.attention(layer);
            decoder.feed_forward(layer);
        }
        let head = match self.tied {
            true => &embedding,
            false => self.names.head(),
        };
        let norm = self.names.final_norm();
        decoder.ops.head(&norm, None, head, self.vocab, h);
        if let Some(cap) = self.features.final_softcap {
            decoder.ops.cap_logits(cap);
        }
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
    /// Queries, keys and values side by side, where one projection gives them all.
    qkv: Option<Slice>,
    q: Slice,
    k: Slice,
    v: Slice,
    attention: Slice,
    /// What a layer's half adds to the residual stream.
    projected: Slice,
    /// The same, normalized, where there is a norm behind.
    normed: Option<Slice>,
    gate_up: Option<Slice>,
    gate: Slice,
    up: Slice,
    activated: Slice,
}

impl Buffers {
    fn new(spec: &DecoderSpec, ranks: usize, ops: &mut PlanBuilder) -> Buffers {
        let q = spec.heads * spec.head_dim / ranks;
        let kv = spec.kv_heads * spec.head_dim / ranks;
        let intermediate = spec.intermediate / ranks;
        let fused = spec.features.fused;
        let (h, x) = (ops.tokens("h", spec.hidden), ops.tokens("x", spec.hidden));
        let (qkv, [q, k, v]) = parts(ops, fused, [("q", q), ("k", kv), ("v", kv)]);
        let attention = ops.tokens("attn_out", q.width);
        let projected = ops.tokens("proj", spec.hidden);
        let normed = spec.features.post_norms;
        let normed = normed.then(|| ops.tokens("normed", spec.hidden));
        let (gate_up, [gate, up]) =
            parts(ops, fused, [("gate", intermediate), ("up", intermediate)]);
        Buffers {
            h,
            x,
            qkv,
            q,
            k,
            v,
            attention,
            projected,
            normed,
            gate_up,
            gate,
            up,
            activated: ops.tokens("ffn_act", intermediate),
        }
    }
}

/// A buffer for each part, or one for all with a slice for each.
fn parts<const N: usize>(
    ops: &mut PlanBuilder,
    together: bool,
    parts: [(&str, usize); N],
) -> (Option<Slice>, [Slice; N]) {
    if !together {
        return (None, parts.map(|(name, width)| ops.tokens(name, width)));
    }
    let name = parts.map(|(name, _)| name).join("+");
    let whole = ops.tokens(&name, parts.iter().map(|(_, width)| width).sum());
    let mut start = 0;
    let slices = parts.map(|(_, width)| {
        let slice = whole.columns(start, width);
        start += width;
        slice
    });
    (Some(whole), slices)
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
    /// Of the layers so far.
    caches: Vec<KvLayer>,
    ops: PlanBuilder,
}

impl Decoder<'_> {
    fn attention(&mut self, layer: usize) {
        let (spec, b) = (self.spec, self.buffers);
        let bias = spec.biases.qkv;
        self.norm(layer, LayerTensor::AttentionNorm, "attn_norm");
        let own_cache = self.cache_of(layer) == layer;
        if let Some(qkv) = b.qkv {
            self.linear(layer, LayerTensor::QueryKeyValue, b.x, qkv, bias);
        } else {
            self.linear(layer, LayerTensor::Query, b.x, b.q, bias);
            if own_cache {
                self.linear(layer, LayerTensor::Key, b.x, b.k, bias);
                self.linear(layer, LayerTensor::Value, b.x, b.v, bias);
            }
        }
        if spec.qk_norm {
            let (q, k) = (LayerTensor::QueryNorm, LayerTensor::KeyNorm);
            let name = |tensor| spec.names.layer(layer, tensor);
            let offset = spec.features.norm_offset;
            self.ops.head_norm(&name(q), b.q, self.heads, offset);
            if own_cache {
                self.ops.head_norm(&name(k), b.k, self.kv_heads, offset);
            }
        }
        self.rotate_and_attend(layer);
        let output = LayerTensor::Output;
        self.linear(layer, output, b.attention, b.projected, spec.biases.output);
        self.add_to_stream(layer, LayerTensor::PostAttentionNorm);
        self.ops
            .plan
            .tap(format!("layer.{layer}.attn_residual"), b.h);
    }

    /// The layer whose keys and values this one reads.
    fn cache_of(&self, layer: usize) -> usize {
        let cache = self.spec.features.cache_of(layer, self.spec.layers);
        cache.expect("the spec was checked")
    }

    fn rotate_and_attend(&mut self, layer: usize) {
        let (spec, b) = (self.spec, self.buffers);
        let cache = self.cache_of(layer);
        let plan = &mut self.ops.plan;
        let rope = plan.rope(spec.rope(layer));
        let window = spec.features.window(layer);
        let plane = (self.kv_heads, spec.head_dim);
        let kv = match window {
            _ if cache != layer => self.caches[cache],
            None => plan.kv_layer("full", &[plane, plane], Retention::Full),
            Some(window) => plan.kv_layer("window", &[plane, plane], Retention::Window(window)),
        };
        self.caches.push(kv);
        let writes = cache == layer;
        plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: b.q,
            k: if writes { b.k } else { b.k.columns(0, 0) },
            v: writes.then_some(b.v),
            rope: Some(rope),
            head_dim: spec.head_dim,
            rotate_from: 0,
            heads: self.heads,
            kv_heads: if writes { self.kv_heads } else { 0 },
            kv,
        }));
        plan.tap(format!("layer.{layer}.q"), b.q);
        let sinks = spec.features.sinks;
        let sinks = sinks.then(|| plan.weight(spec.names.sinks(layer), &[self.heads]));
        plan.push(Op::Attention(Attention {
            q: b.q,
            kv: KvSource::Paged(kv),
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: spec.head_dim,
            value_dim: spec.head_dim,
            values_in_keys: false,
            scale: match spec.features.attention_scale {
                Some(scale) => scale,
                None => (spec.head_dim as f32).sqrt().recip(),
            },
            window,
            softcap: spec.features.attention_softcap,
            sinks,
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
        self.add_to_stream(layer, LayerTensor::PostFeedForwardNorm);
        self.ops
            .plan
            .tap(format!("layer.{layer}.out"), self.buffers.h);
    }

    fn dense(&mut self, layer: usize) {
        let b = self.buffers;
        let bias = self.spec.biases.feed_forward;
        if let Some(gate_up) = b.gate_up {
            self.linear(layer, LayerTensor::GateUp, b.x, gate_up, bias);
        } else {
            self.linear(layer, LayerTensor::Gate, b.x, b.gate, bias);
            self.linear(layer, LayerTensor::Up, b.x, b.up, bias);
        }
        let activation = self.spec.features.activation;
        self.ops.gated(b.gate, b.up, activation, b.activated);
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

    /// Through the norm behind, where there is one.
    fn add_to_stream(&mut self, layer: usize, norm: LayerTensor) {
        let (h, projected) = (self.buffers.h, self.buffers.projected);
        if let Variant::Share(share) = self.variant {
            let (x, ranks) = (projected, share.ranks);
            self.ops.plan.push(Op::AllReduce(AllReduce { x, ranks }));
        }
        match self.buffers.normed {
            Some(normed) => {
                let name = self.spec.names.layer(layer, norm);
                self.ops.rms_norm(&name, projected, normed);
                self.ops.add(h, normed);
            }
            None => self.ops.add(h, projected),
        }
    }
}
