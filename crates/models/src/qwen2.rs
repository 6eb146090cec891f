//! Owns Qwen2 and Qwen2.5: query, key and value projections have biases.

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

pub const NAME: &str = "qwen2";

const BIASES: Biases = Biases {
    qkv: true,
    output: false,
    feed_forward: false,
};

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let shape = Shape::read(&config)?;
    let features = Features {
        windows: windows::switched(&config, shape.layers)?,
        ..Features::default()
    };
    config.must_be("use_mrope", false)?;
    hf_decoder::finish(config, NAME, shape, BIASES, false, features)
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let config = GgufConfig::new(NAME, metadata, tensors);
    config.decoder(RopeStyle::Neox, BIASES, false, Features::default())
}
