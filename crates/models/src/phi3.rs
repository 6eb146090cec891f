//! Owns Phi-3 and Phi-4: fused projections, LongRoPE, heads that are rotated in part.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::gguf_config::GgufConfig;
use crate::hf_decoder::{self, Shape};
use crate::windows;
use mettle_plan::RopeStyle;
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "phi3";

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let mut shape = Shape::read(&config)?;
    for key in ["attention_bias", "mlp_bias", "lm_head_bias"] {
        config.must_be(key, false)?;
    }
    // Of Phi-4-mini; transformers reads neither.
    config.ignore(&["full_attn_mod", "interpolate_factor"]);
    // Without LongRoPE it has no effect.
    config.ignore(&["original_max_position_embeddings"]);
    if let Some(partial) = config.float_or_none("partial_rotary_factor")? {
        shape.rope.partial = partial;
    }
    let features = Features {
        windows: windows::everywhere(&config, shape.layers)?,
        fused: true,
        ..Features::default()
    };
    hf_decoder::finish(config, NAME, shape, Biases::default(), false, features)
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let config = GgufConfig::new(NAME, metadata, tensors);
    let layers = config.size("block_count")?;
    let windows = match config.size_or_none("attention.sliding_window")? {
        None | Some(0) => Vec::new(),
        Some(window) => windows::of_all(layers, window),
    };
    let features = Features {
        windows,
        fused: true,
        ..Features::default()
    };
    config.decoder(RopeStyle::Neox, Biases::default(), false, features)
}
