//! Owns Llama: Llama 2 and 3.x, TinyLlama, SmolLM2 and whatever else calls itself `llama`.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::gguf_config::GgufConfig;
use crate::gguf_mixture::GgufMixture;
use crate::hf_decoder::{self, Shape};
use crate::names::LayerTensor;
use crate::windows;
use mettle_plan::RopeStyle;
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "llama";

/// Defaults are those of transformers' LlamaConfig: no biases, an untied head.
pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let shape = Shape::read(&config)?;
    config.must_be("pretraining_tp", 1)?;
    config.must_be("rope_interleaved", false)?;
    let attention = config.flag_or_none("attention_bias")?.unwrap_or(false);
    let biases = Biases {
        qkv: attention,
        output: attention,
        feed_forward: config.flag_or_none("mlp_bias")?.unwrap_or(false),
    };
    hf_decoder::finish(config, NAME, shape, biases, false, Features::default())
}

/// Mistral's files call themselves `llama` too (llama.cpp's converter leaves their window out; where a file has its key, it
/// counts), and Mixtral's, which have experts. Converters reorder the rows of q and k so that the rotated pairs lie side by
/// side; whether a projection has a bias only the tensors tell.
pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let config = GgufConfig::new(NAME, metadata, tensors).with_experts(GgufMixture::default())?;
    let biases = Biases {
        qkv: config.has_bias(LayerTensor::Query),
        output: config.has_bias(LayerTensor::Output),
        feed_forward: config.has_bias(LayerTensor::Gate),
    };
    let windows = match config.size_or_none("attention.sliding_window")? {
        None | Some(0) => Vec::new(),
        Some(window) => windows::of_all(config.size("block_count")?, window),
    };
    let features = Features {
        windows,
        ..Features::default()
    };
    config.decoder(RopeStyle::Interleaved, biases, false, features)
}
