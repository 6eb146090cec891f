//! Owns Qwen3 (dense): every query and key head is normalized before rotation, heads have a size of their own.

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

pub const NAME: &str = "qwen3";

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let (shape, biases, features) = read(&config)?;
    hf_decoder::finish(config, NAME, shape, biases, true, features)
}

/// What the models with experts have too. Unlike the others', an absent `head_dim` would mean 128 to transformers; every
/// published config names it.
pub(crate) fn read(config: &Config) -> Result<(Shape, Biases, Features)> {
    config.size("head_dim")?;
    let shape = Shape::read(config)?;
    let features = Features {
        windows: windows::switched(config, shape.layers)?,
        ..Features::default()
    };
    let attention = config.flag_or_none("attention_bias")?.unwrap_or(false);
    let biases = Biases {
        qkv: attention,
        output: attention,
        feed_forward: false,
    };
    Ok((shape, biases, features))
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let config = GgufConfig::new(NAME, metadata, tensors);
    config.decoder(
        RopeStyle::Neox,
        Biases::default(),
        true,
        Features::default(),
    )
}
