//! Owns Qwen3 (dense): every query and key head is normalized before rotation, heads have a size of their own.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::gguf_config::GgufConfig;
use crate::hf_decoder::{self, Shape};
use mettle_plan::RopeStyle;
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "qwen3";

/// Unlike the others', an absent `head_dim` would mean 128 to transformers; every published config names it.
pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    config.size("head_dim")?;
    let shape = Shape::read(&config)?;
    hf_decoder::refuse_windows(&config)?;
    let attention = config.flag_or_none("attention_bias")?.unwrap_or(false);
    let biases = Biases {
        qkv: attention,
        output: attention,
        feed_forward: false,
    };
    hf_decoder::finish(config, NAME, shape, biases, true)
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    GgufConfig::new(NAME, metadata, tensors).decoder(RopeStyle::Neox, Biases::default(), true)
}
