//! Owns the ops of a dense pre-norm decoder: from its dimensions to a plan. Passes fuse what is written plainly here.

use crate::decoder::DecoderSpec;
use crate::layer_inputs::LayerInputs;
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
        let inputs = self.features.per_layer_width;
        let inputs = inputs.map(|width| LayerInputs::push(&mut decoder.ops, self, h, width));
        for layer in 0..self.layers {
            decoder.attention(layer);
            decoder.feed_forward(layer);
            if let Some(inputs) = &inputs {
                inputs.add(&mut decoder.ops, self, layer, decoder.buffers.projected);
            }
            if self.features.layer_scales {
                let scale = self.names.layer(layer, LayerTensor::Scale);
                let scale = decoder.ops.plan.weight(scale, &[1]);
                decoder.ops.elementwise(Expr::ScaleBy(scale), h, None, h);
            }
            decoder.ops.plan.tap(format!("layer.{layer}.out"), h);
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
    /// Of layers that see everything, and of those with a window.
    full: HeadBuffers,
    windowed: HeadBuffers,
    /// What a layer's half adds to the residual stream.
    projected: Slice,
    /// The same, normalized, where there is a norm behind.
    normed: Option<Slice>,
    plain: WideBuffers,
    /// Of layers whose feed-forward is twice as wide.
    wide: WideBuffers,
}

/// What attention computes with.
#[derive(Clone, Copy)]
struct HeadBuffers {
    /// Queries, keys and values side by side, where one projection gives them all.
    qkv: Option<Slice>,
    q: Slice,
    k: Slice,
    v: Slice,
    attention: Slice,
}

impl HeadBuffers {
    fn new(ops: &mut PlanBuilder, q: usize, kv: usize, fused: bool) -> HeadBuffers {
        let (qkv, [q, k, v]) = parts(ops, fused, [("q", q), ("k", kv), ("v", kv)]);
        HeadBuffers {
            qkv,
            q,
            k,
            v,
            attention: ops.tokens("attn_out", q.width),
        }
    }
}

/// What a feed-forward computes with.
#[derive(Clone, Copy)]
struct WideBuffers {
    gate_up: Option<Slice>,
    gate: Slice,
    up: Slice,
    activated: Slice,
}

impl WideBuffers {
    fn new(ops: &mut PlanBuilder, width: usize, fused: bool) -> WideBuffers {
        let (gate_up, [gate, up]) = parts(ops, fused, [("gate", width), ("up", width)]);
        WideBuffers {
            gate_up,
            gate,
            up,
            activated: ops.tokens("ffn_act", width),
        }
    }
}

impl Buffers {
    fn new(spec: &DecoderSpec, ranks: usize, ops: &mut PlanBuilder) -> Buffers {
        let fused = spec.features.fused;
        let intermediate = spec.intermediate / ranks;
        let (h, x) = (ops.tokens("h", spec.hidden), ops.tokens("x", spec.hidden));
        let mut heads = |head_dim: usize| {
            let (q, kv) = (spec.heads * head_dim, spec.kv_heads * head_dim);
            HeadBuffers::new(ops, q / ranks, kv / ranks, fused)
        };
        let full = heads(spec.head_dim);
        let windowed = spec.features.window_head_dim.map_or(full, heads);
        let projected = ops.tokens("proj", spec.hidden);
        let normed = spec.features.post_norms;
        let normed = normed.then(|| ops.tokens("normed", spec.hidden));
        let plain = WideBuffers::new(ops, intermediate, fused);
        let wide = match spec.features.wide_sharing {
            true => WideBuffers::new(ops, 2 * intermediate, fused),
            false => plain,
        };
        Buffers {
            h,
            x,
            full,
            windowed,
            projected,
            normed,
            plain,
            wide,
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
    fn heads(&self, layer: usize) -> HeadBuffers {
        match self.spec.features.window(layer) {
            Some(_) => self.buffers.windowed,
            None => self.buffers.full,
        }
    }

    fn attention(&mut self, layer: usize) {
        let (spec, b) = (self.spec, self.heads(layer));
        let Buffers {
            h, x, projected, ..
        } = self.buffers;
        let bias = spec.biases.qkv;
        self.norm(layer, LayerTensor::AttentionNorm, "attn_norm");
        let own_cache = self.cache_of(layer) == layer;
        if let Some(qkv) = b.qkv {
            self.linear(layer, LayerTensor::QueryKeyValue, x, qkv, bias);
        } else {
            self.linear(layer, LayerTensor::Query, x, b.q, bias);
            if own_cache {
                self.linear(layer, LayerTensor::Key, x, b.k, bias);
                self.linear(layer, LayerTensor::Value, x, b.v, bias);
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
        if spec.features.value_norm && own_cache {
            self.ops.plain_head_norm(b.v, self.kv_heads);
        }
        self.rotate_and_attend(layer);
        let output = LayerTensor::Output;
        self.linear(layer, output, b.attention, projected, spec.biases.output);
        self.add_to_stream(layer, LayerTensor::PostAttentionNorm);
        self.ops.plan.tap(format!("layer.{layer}.attn_residual"), h);
    }

    /// The layer whose keys and values this one reads.
    fn cache_of(&self, layer: usize) -> usize {
        let cache = self.spec.features.cache_of(layer, self.spec.layers);
        cache.expect("the spec was checked")
    }

    fn rotate_and_attend(&mut self, layer: usize) {
        let (spec, b) = (self.spec, self.heads(layer));
        let head_dim = spec.head_dim_of(layer);
        let cache = self.cache_of(layer);
        let plan = &mut self.ops.plan;
        let rope = plan.rope(spec.rope(layer));
        let window = spec.features.window(layer);
        let plane = (self.kv_heads, head_dim);
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
            head_dim,
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
            head_dim,
            value_dim: head_dim,
            values_in_keys: false,
            scale: match spec.features.attention_scale {
                Some(scale) => scale,
                None => (head_dim as f32).sqrt().recip(),
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
    }

    fn dense(&mut self, layer: usize) {
        let Buffers {
            x,
            projected,
            plain,
            wide,
            ..
        } = self.buffers;
        let b = match self.spec.intermediate_of(layer) > self.spec.intermediate {
            true => wide,
            false => plain,
        };
        let bias = self.spec.biases.feed_forward;
        if let Some(gate_up) = b.gate_up {
            self.linear(layer, LayerTensor::GateUp, x, gate_up, bias);
        } else {
            self.linear(layer, LayerTensor::Gate, x, b.gate, bias);
            self.linear(layer, LayerTensor::Up, x, b.up, bias);
        }
        let activation = self.spec.features.activation;
        self.ops.gated(b.gate, b.up, activation, b.activated);
        self.ops
            .plan
            .tap(format!("layer.{layer}.ffn_act"), b.activated);
        self.linear(layer, LayerTensor::Down, b.activated, projected, bias);
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
