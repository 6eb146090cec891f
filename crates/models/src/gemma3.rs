//! Owns Gemma 3's text model: norms of queries and keys, five layers with a window to one that sees everything, and a
//! rotation for each of the two. Of a model with images the text part.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::{Features, WindowRope};
use crate::gemma2::{activation, features, largest_scale};
use crate::gguf_config::GgufConfig;
use crate::hf_decoder::{self, Shape};
use crate::names::Names;
use crate::rope_config::RopeConfig;
use crate::windows;
use mettle_plan::{RopeScaling, RopeStyle};
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const TEXT_NAME: &str = "gemma3_text";
pub const GGUF_NAME: &str = "gemma3";

/// transformers' defaults, which published configs rely on.
const PERIOD: usize = 6;
const BASE: f32 = 1e6;
const WINDOW_BASE: f32 = 1e4;
const SIZES: [(&str, usize); 6] = [
    ("vocab_size", 262_208),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("max_position_embeddings", 131_072),
    ("sliding_window", 4096),
];
/// Of the 27B model, as in Gemma 2.
const LARGEST_LAYERS: usize = 62;

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    read(Config::new("config.json", json)?, "model")
}

/// The text part. `prefix` is that of its tensors.
pub fn read(config: Config, prefix: &'static str) -> Result<DecoderSpec> {
    hf_decoder::ignore_quantization(&config)?;
    activation(&config)?;
    config.must_be("attention_bias", false)?;
    config.must_be("use_bidirectional_attention", false)?;
    config.ignore(&["cache_implementation"]);
    let size = |key: &str| {
        let default = SIZES.iter().find(|(name, _)| *name == key);
        let found = config.size_or_none(key)?.or(default.map(|(_, size)| *size));
        found.ok_or_else(|| config.missing(key))
    };
    let (rope, window_rope) = ropes(&config)?;
    let shape = Shape {
        vocab: size("vocab_size")?,
        hidden: size("hidden_size")?,
        layers: size("num_hidden_layers")?,
        heads: size("num_attention_heads")?,
        kv_heads: size("num_key_value_heads")?,
        head_dim: size("head_dim")?,
        intermediate: size("intermediate_size")?,
        eps: config.float_or_none("rms_norm_eps")?.unwrap_or(1e-6),
        rope,
        tied: config.flag_or_none("tie_word_embeddings")?.unwrap_or(true),
        context_length: size("max_position_embeddings")?,
    };
    let scalar = config
        .float_or_none("query_pre_attn_scalar")?
        .unwrap_or(256.0);
    let underscored = config.size_or_none("_sliding_window_pattern")?;
    let period = config
        .size_or_none("sliding_window_pattern")?
        .or(underscored);
    let period = period.unwrap_or(PERIOD).max(1);
    let features = Features {
        attention_scale: Some(scalar.sqrt().recip()),
        attention_softcap: config.float_or_none("attn_logit_softcapping")?,
        final_softcap: config.float_or_none("final_logit_softcapping")?,
        windows: windows::periodic(&config, shape.layers, size("sliding_window")?, period)?,
        window_rope: Some(window_rope),
        ..features(shape.hidden, 1.0)
    };
    let mut spec = hf_decoder::finish(config, TEXT_NAME, shape, Biases::default(), true, features)?;
    spec.names = Names::HfGemma(prefix);
    spec.unread = hf_decoder::unread(&spec);
    Ok(spec)
}

/// Of layers that see everything, and of those with a window. transformers 5 lists both in `rope_parameters`;
/// transformers 4 stretches the first with `rope_scaling` and gives the second a base.
fn ropes(config: &Config) -> Result<(RopeConfig, WindowRope)> {
    let local = config.float_or_none("rope_local_base_freq")?;
    let Some(parameters) = config.object_or_none("rope_parameters")? else {
        let base = config.float_or_none("rope_theta")?.unwrap_or(BASE);
        let full = match config.object_or_none("rope_scaling")? {
            Some(scaling) => RopeConfig::read(config, &scaling, base)?,
            None => RopeConfig {
                base,
                scaling: RopeScaling::None,
                partial: 1.0,
                long: None,
            },
        };
        let base = local.unwrap_or(WINDOW_BASE);
        let scaling = RopeScaling::None;
        return Ok((full, WindowRope { base, scaling }));
    };
    let of = |kind: &str, default: f32| {
        let rope = parameters.object(kind)?;
        let base = rope.float_or_none("rope_theta")?.unwrap_or(default);
        RopeConfig::read(config, &rope, base)
    };
    let (full, window) = (
        of("full_attention", BASE)?,
        of("sliding_attention", WINDOW_BASE)?,
    );
    parameters.finish()?;
    if window.long.is_some() || window.partial != 1.0 || full.partial != 1.0 {
        return Err(config.unsupported("rope_parameters", "whole heads without longrope are"));
    }
    let RopeConfig { base, scaling, .. } = window;
    Ok((full, WindowRope { base, scaling }))
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let config = GgufConfig::new(GGUF_NAME, metadata, tensors);
    let (layers, hidden) = (
        config.size("block_count")?,
        config.size("embedding_length")?,
    );
    let windows = match config.size_or_none("attention.sliding_window")? {
        None | Some(0) => Vec::new(),
        Some(window) => config.periodic_windows(layers, window, PERIOD)?,
    };
    let base = config.float_or_none("rope.freq_base_swa")?;
    let features = Features {
        attention_scale: largest_scale(&config, layers, LARGEST_LAYERS)?,
        final_softcap: config.float_or_none("final_logit_softcapping")?,
        windows,
        window_rope: Some(WindowRope {
            base: base.unwrap_or(WINDOW_BASE),
            scaling: RopeScaling::None,
        }),
        ..features(hidden, 0.0)
    };
    config.decoder(RopeStyle::Neox, Biases::default(), true, features)
}
