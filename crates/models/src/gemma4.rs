//! Owns Gemma 4's dense text models (E2B, E4B and their kin): later layers read the cache of earlier ones, heads are
//! wider where a layer sees everything, and every layer has an embedding of its own.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::{Features, WindowRope};
use crate::gemma2::{activation, features};
use crate::gguf_config::GgufConfig;
use crate::hf_decoder::{self, Shape};
use crate::names::{LayerTensor, Names};
use crate::rope_config::RopeConfig;
use crate::windows;
use mettle_plan::{RopeScaling, RopeStyle};
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const TEXT_NAME: &str = "gemma4_text";
pub const GGUF_NAME: &str = "gemma4";

/// As good as no rotation, and finite, as GGUF files have it too.
const UNROTATED: f32 = 1e30;

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    hf_decoder::ignore_quantization(&config)?;
    activation(&config)?;
    for key in ["attention_bias", "attention_k_eq_v", "enable_moe_block"] {
        config.must_be(key, false)?;
    }
    config.must_be("use_bidirectional_attention", false)?;
    config.must_be("vocab_size_per_layer_input", config.size("vocab_size")?)?;
    // They belong to mixtures of experts, or to keys that are values too.
    config.ignore(&[
        "moe_intermediate_size",
        "num_experts",
        "top_k_experts",
        "num_global_key_value_heads",
    ]);
    let (layers, window) = (
        config.size("num_hidden_layers")?,
        config.size("sliding_window")?,
    );
    let windows = windows::listed(&config, layers, Some(window))?;
    let windows = windows.ok_or_else(|| config.missing("layer_types"))?;
    let head_dim = full_head_dim(&config, &windows)?;
    let parameters = config.object("rope_parameters")?;
    let rope = parameters.object("sliding_attention")?;
    let base = rope.float("rope_theta")?;
    let window_rope = RopeConfig::read(&config, &rope, base)?;
    let rope = full_rope(&parameters.object("full_attention")?, head_dim)?;
    parameters.finish()?;
    let shape = Shape {
        vocab: config.size("vocab_size")?,
        hidden: config.size("hidden_size")?,
        layers,
        heads: config.size("num_attention_heads")?,
        kv_heads: config.size("num_key_value_heads")?,
        head_dim,
        intermediate: config.size("intermediate_size")?,
        eps: config.float("rms_norm_eps")?,
        rope,
        tied: config.flag_or_none("tie_word_embeddings")?.unwrap_or(true),
        context_length: config.size("max_position_embeddings")?,
    };
    let features = Features {
        final_softcap: config.float_or_none("final_logit_softcapping")?,
        windows,
        window_rope: Some(WindowRope {
            base: window_rope.base,
            scaling: window_rope.scaling,
        }),
        window_head_dim: Some(config.size("head_dim")?),
        kv_shared_layers: config.size("num_kv_shared_layers")?,
        wide_sharing: config.flag_or_none("use_double_wide_mlp")?.unwrap_or(false),
        per_layer_width: Some(config.size("hidden_size_per_layer_input")?).filter(|w| *w > 0),
        ..own_features(shape.hidden)
    };
    let mut spec = hf_decoder::finish(config, TEXT_NAME, shape, Biases::default(), true, features)?;
    spec.names = Names::HfGemma("model");
    spec.unread = hf_decoder::unread(&spec);
    Ok(with_unread(spec))
}

fn own_features(hidden: usize) -> Features {
    Features {
        attention_scale: Some(1.0),
        value_norm: true,
        layer_scales: true,
        ..features(hidden, 0.0)
    }
}

/// Layers that see everything have heads of their own size: `global_head_dim`, or listed layer by layer.
fn full_head_dim(config: &Config, windows: &[Option<usize>]) -> Result<usize> {
    if let Some(head_dim) = config.size_or_none("global_head_dim")? {
        return Ok(head_dim);
    }
    let listed = config.object("per_layer_config")?;
    let mut found = None;
    for layer in (0..windows.len()).filter(|layer| windows[*layer].is_none()) {
        let own = listed.object(&layer.to_string())?;
        let head_dim = own.size("head_dim")?;
        if found.is_some_and(|other| other != head_dim) {
            return Err(listed.mismatch(format!("heads of {head_dim} in layer {layer} alone")));
        }
        own.finish()?;
        found = Some(head_dim);
    }
    listed.finish()?;
    found.ok_or_else(|| config.missing("global_head_dim"))
}

/// The first pairs of a head turn as if all did, the others not at all.
fn full_rope(config: &Config, head_dim: usize) -> Result<RopeConfig> {
    config.must_be("rope_type", "proportional")?;
    let partial = config.float("partial_rotary_factor")?;
    let pairs = head_dim.min(1 << 16) / 2;
    let rotated = (partial * head_dim as f32 / 2.0) as usize;
    let divisors = (0..pairs).map(|pair| if pair < rotated { 1.0 } else { UNROTATED });
    let rope = RopeConfig {
        base: config.float("rope_theta")?,
        scaling: RopeScaling::Divisors(divisors.collect()),
        partial: 1.0,
        long: None,
    };
    config.finish()?;
    Ok(rope)
}

/// Published files keep the projections of layers that read another's cache.
fn with_unread(mut spec: DecoderSpec) -> DecoderSpec {
    let tensors = [LayerTensor::Key, LayerTensor::Value, LayerTensor::KeyNorm];
    for layer in spec.layers - spec.features.kv_shared_layers..spec.layers {
        let names = tensors.map(|tensor| spec.names.layer(layer, tensor) + ".weight");
        spec.unread.extend(names);
    }
    spec
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let config = GgufConfig::new(GGUF_NAME, metadata, tensors);
    let hidden = config.size("embedding_length")?;
    let window = config.size("attention.sliding_window")?;
    let kinds = config.flags("attention.sliding_window_pattern")?;
    let windows = kinds.iter().map(|sliding| sliding.then_some(window));
    let window_head_dim = config.size("attention.key_length_swa")?;
    config.must_be("attention.value_length_swa", window_head_dim)?;
    config.must_be("rope.dimension_count_swa", window_head_dim)?;
    let features = Features {
        final_softcap: config.float_or_none("final_logit_softcapping")?,
        windows: windows.collect(),
        window_rope: Some(WindowRope {
            base: config.float_or_none("rope.freq_base_swa")?.unwrap_or(1e4),
            scaling: RopeScaling::None,
        }),
        window_head_dim: Some(window_head_dim),
        kv_shared_layers: config
            .size_or_none("attention.shared_kv_layers")?
            .unwrap_or(0),
        wide_sharing: config.widths()?.is_some_and(|(first, last)| first < last),
        per_layer_width: config
            .size_or_none("embedding_length_per_layer_input")?
            .filter(|width| *width > 0),
        ..own_features(hidden)
    };
    let spec = config.decoder(RopeStyle::Neox, Biases::default(), true, features)?;
    Ok(with_unread(spec))
}
