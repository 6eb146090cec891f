//! Owns Gemma 3 with images: a vision tower's plan, and a text plan whose image tokens take the tower's rows.

use super::Declared;
use super::feed_forward::FeedForward;
use crate::config::Config;
use crate::decoder::DecoderSpec;
use crate::error::Result;
use crate::gemma3;
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;
use mettle_tensor::DType;
use serde_json::Value;

pub const NAME: &str = "gemma3";

/// Norms store weight - 1.
const NORM_OFFSET: f32 = 1.0;

struct Vision {
    hidden: usize,
    width: usize,
    layers: usize,
    heads: usize,
    eps: f32,
    /// Elements of a patch: channels x height x width.
    patch: usize,
    /// Patches of an image, and how many of them become one row for the text.
    patches: usize,
    patches_a_row: usize,
    patch_shape: [usize; 3],
}

fn read(json: &Value) -> Result<(DecoderSpec, Vision)> {
    let config = Config::new("config.json", json)?;
    config.text("model_type")?;
    // Which token ids stand for images is the host's business.
    config.ignore(&["boi_token_index", "eoi_token_index", "image_token_index"]);
    config.must_be("tie_word_embeddings", true)?;
    let text = config.object("text_config")?;
    let text = gemma3::read(text, "language_model.model")?;
    let rows = config.width("mm_tokens_per_image")?;
    let vision = Vision::read(&config.object("vision_config")?, rows)?;
    config.finish()?;
    Ok((text, vision))
}

/// The text part alone, which runs; what belongs to images is not read.
pub fn text_from_hf(json: &Value) -> Result<DecoderSpec> {
    let (mut text, vision) = read(json)?;
    let declared = Declared {
        name: "",
        weight_type: DType::F32,
        kv_element: KvElement::F32,
    };
    for tensor in vision_plan(&vision, &text, declared).tensors() {
        // transformers 5 writes the shorter names.
        text.unread.push(tensor.name.replace(".vision_model.", "."));
        text.unread.push(tensor.name);
    }
    Ok(text)
}

/// Every layer's cache. The vision tower declares them too, so that one pool serves both plans.
fn caches(text: &DecoderSpec, plan: &mut Plan) -> Vec<KvLayer> {
    let plane = (text.kv_heads, text.head_dim);
    let mut cache = |layer| match text.features.window(layer) {
        None => plan.kv_layer("full", &[plane, plane], Retention::Full),
        Some(window) => plan.kv_layer("window", &[plane, plane], Retention::Window(window)),
    };
    (0..text.layers).map(&mut cache).collect()
}

impl Vision {
    fn read(config: &Config, rows: usize) -> Result<Vision> {
        config.must_be("model_type", "siglip_vision_model")?;
        config.must_be("hidden_act", "gelu_pytorch_tanh")?;
        config.must_be("vision_use_head", false)?;
        let (image, side) = (config.width("image_size")?, config.count("patch_size")?);
        let channels = config.count("num_channels")?;
        let patches = (image / side).pow(2);
        let (hidden, heads) = (
            config.width("hidden_size")?,
            config.count("num_attention_heads")?,
        );
        if patches == 0 || !patches.is_multiple_of(rows) || !hidden.is_multiple_of(heads) {
            return Err(config.mismatch(format!(
                "{patches} patches make no {rows} rows, or {hidden} columns no {heads} heads"
            )));
        }
        let vision = Vision {
            hidden,
            width: config.width("intermediate_size")?,
            layers: config.layers("num_hidden_layers")?,
            heads,
            eps: config.float("layer_norm_eps")?,
            patch: channels * side * side,
            patches,
            patches_a_row: patches / rows,
            patch_shape: [channels, side, side],
        };
        config.finish()?;
        Ok(vision)
    }
}

/// The vision tower's plan, then the text model's.
pub fn plans(json: &Value, declared: Declared) -> Result<Vec<Plan>> {
    let (text, vision) = read(json)?;
    Ok(vec![
        vision_plan(&vision, &text, declared),
        text_plan(&text, declared),
    ])
}

/// The host cuts images into patches, ordered so that the ones that become one row follow each other.
fn vision_plan(spec: &Vision, text: &DecoderSpec, declared: Declared) -> Plan {
    let name = format!("{} vision", declared.name);
    let (dtype, kv) = (declared.weight_type, declared.kv_element);
    let mut ops = PlanBuilder::new(&name, dtype, kv, spec.eps, NORM_OFFSET);
    let rows = Dim::MediaPatches;
    let pixels = ops.plan.input("patches", rows, spec.patch, Element::F32);
    let places = ops.plan.input("patch_places", rows, 1, Element::U32);
    // Patches of several images share a step; a patch sees its own image only.
    let segments = ops.plan.input("segments", rows, 1, Element::U32);
    caches(text, &mut ops.plan);
    let mut buffer = |name: &str, width| ops.plan.buffer(name, rows, width);
    let (h, x) = (buffer("h", spec.hidden), buffer("x", spec.hidden));
    let (q, k, v) = (
        buffer("q", spec.hidden),
        buffer("k", spec.hidden),
        buffer("v", spec.hidden),
    );
    let (attention, projected) = (buffer("attn_out", spec.hidden), buffer("proj", spec.hidden));
    let wide = buffer("act", spec.width);
    let prefix = "vision_tower.vision_model";
    let [channels, height, width] = spec.patch_shape;
    let weight = ops.cut(
        &format!("{prefix}.embeddings.patch_embedding.weight"),
        &[spec.hidden, channels, height, width],
        Take::Flattened,
        &[spec.hidden, spec.patch],
    );
    let bias = format!("{prefix}.embeddings.patch_embedding.bias");
    let bias = ops.plan.weight(bias, &[spec.hidden]);
    ops.plan.push(Op::Linear(Linear {
        x: pixels,
        weight,
        bias: Some(bias),
        residual: None,
        adapters: None,
        groups: 1,
        out: h,
    }));
    let table = format!("{prefix}.embeddings.position_embedding.weight");
    let table = ops.plan.weight(table, &[spec.patches, spec.hidden]);
    ops.plan.push(Op::Embed(Embed {
        ids: places,
        table,
        out: projected,
        scale: 1.0,
    }));
    ops.add(h, projected);
    let head_dim = spec.hidden / spec.heads;
    for layer in 0..spec.layers {
        let name = |what: &str| format!("{prefix}.encoder.layers.{layer}.{what}");
        ops.layer_norm(&name("layer_norm1"), h, spec.eps, x);
        ops.linear(&name("self_attn.q_proj"), x, q, true);
        ops.linear(&name("self_attn.k_proj"), x, k, true);
        ops.linear(&name("self_attn.v_proj"), x, v, true);
        ops.plan.push(Op::Attention(Attention {
            q,
            kv: KvSource::Rows {
                k,
                v,
                segments: Some(segments),
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
            out: attention,
        }));
        ops.linear(&name("self_attn.out_proj"), attention, projected, true);
        ops.add(h, projected);
        ops.layer_norm(&name("layer_norm2"), h, spec.eps, x);
        ops.linear(&name("mlp.fc1"), x, wide, true);
        ops.elementwise(Expr::Apply(Activation::GeluTanh), wide, None, wide);
        ops.linear(&name("mlp.fc2"), wide, projected, true);
        ops.add(h, projected);
        ops.plan.tap(format!("vision.{layer}.out"), h);
    }
    ops.layer_norm(&format!("{prefix}.post_layernorm"), h, spec.eps, x);
    let pooled = ops.plan.buffer("pooled", Dim::MediaRows, spec.hidden);
    ops.plan.push(Op::Pool(Pool {
        x,
        pooling: Pooling::MeanOf(spec.patches_a_row),
        out: pooled,
    }));
    ops.rms_norm("multi_modal_projector.mm_soft_emb_norm", pooled, pooled);
    let media = ops.plan.buffer("media", Dim::MediaRows, text.hidden);
    let weight = ops.cut(
        "multi_modal_projector.mm_input_projection_weight",
        &[spec.hidden, text.hidden],
        Take::Transposed,
        &[text.hidden, spec.hidden],
    );
    ops.linear_of(weight, None, 1, pooled, media);
    ops.plan.tap("media", media);
    ops.plan.mark_output(media);
    ops.finish()
}

fn text_plan(spec: &DecoderSpec, declared: Declared) -> Plan {
    let (dtype, kv) = (declared.weight_type, declared.kv_element);
    let mut ops = PlanBuilder::new(declared.name, dtype, kv, spec.eps, NORM_OFFSET);
    let media = ops
        .plan
        .input("media", Dim::MediaRows, spec.hidden, Element::F32);
    let places = ops
        .plan
        .input("media_places", Dim::MediaRows, 1, Element::U32);
    // Tokens of an image see all of it; all others only what came before.
    let visible_to = ops.plan.input("visible_to", Dim::Tokens, 1, Element::U32);
    let (h, x) = (ops.tokens("h", spec.hidden), ops.tokens("x", spec.hidden));
    let q = ops.tokens("q", spec.heads * spec.head_dim);
    let k = ops.tokens("k", spec.kv_heads * spec.head_dim);
    let v = ops.tokens("v", spec.kv_heads * spec.head_dim);
    let attention = ops.tokens("attn_out", spec.heads * spec.head_dim);
    let projected = ops.tokens("proj", spec.hidden);
    let mut feed_forward = FeedForward::new(&mut ops, "ffn", spec.intermediate, projected);
    feed_forward.activation = spec.features.activation;
    let table = "language_model.model.embed_tokens.weight";
    ops.embed(table, spec.vocab, spec.features.embedding_scale, h);
    ops.plan.push(Op::EmbedRows(EmbedRows {
        media,
        target_rows: places,
        out: h,
    }));
    let caches = caches(spec, &mut ops.plan);
    for (layer, kv) in caches.into_iter().enumerate() {
        let name = |what: &str| format!("language_model.model.layers.{layer}.{what}");
        ops.rms_norm(&name("input_layernorm"), h, x);
        ops.linear(&name("self_attn.q_proj"), x, q, false);
        ops.linear(&name("self_attn.k_proj"), x, k, false);
        ops.linear(&name("self_attn.v_proj"), x, v, false);
        ops.head_norm(&name("self_attn.q_norm"), q, spec.heads, NORM_OFFSET);
        ops.head_norm(&name("self_attn.k_norm"), k, spec.kv_heads, NORM_OFFSET);
        let window = spec.features.window(layer);
        let rope = ops.plan.rope(spec.rope(layer));
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
        ops.plan.push(Op::Attention(Attention {
            q,
            kv: KvSource::Paged(kv),
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            value_dim: spec.head_dim,
            values_in_keys: false,
            scale: spec.features.attention_scale.expect("read"),
            window,
            softcap: spec.features.attention_softcap,
            sinks: None,
            bias: None,
            visible_to: Some(visible_to),
            out: attention,
        }));
        ops.linear(&name("self_attn.o_proj"), attention, projected, false);
        ops.rms_norm(&name("post_attention_layernorm"), projected, projected);
        ops.add(h, projected);
        ops.rms_norm(&name("pre_feedforward_layernorm"), h, x);
        feed_forward.push(&mut ops, &name("mlp"), x);
        ops.rms_norm(&name("post_feedforward_layernorm"), projected, projected);
        ops.add(h, projected);
        ops.plan.tap(format!("layer.{layer}.out"), h);
    }
    ops.head("language_model.model.norm", None, table, spec.vocab, h);
    if let Some(cap) = spec.features.final_softcap {
        ops.cap_logits(cap);
    }
    ops.finish()
}
