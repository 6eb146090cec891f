//! Owns Qwen3-MoE: Qwen3 with mixtures of experts in all or some layers.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::gguf_config::GgufConfig;
use crate::gguf_mixture::GgufMixture;
use crate::hf_decoder;
use crate::qwen_mixture;
use crate::qwen3;
use mettle_plan::RopeStyle;
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "qwen3_moe";
pub const GGUF_NAME: &str = "qwen3moe";

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let (shape, biases, features) = qwen3::read(&config)?;
    let mixture = qwen_mixture::read(&config)?;
    let mut spec = hf_decoder::finish(config, NAME, shape, biases, true, features)?;
    spec.mixture = Some(mixture);
    Ok(spec)
}

/// The files do not say whether shares are normalized; all published models do it.
pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    GgufConfig::new(GGUF_NAME, metadata, tensors)
        .with_experts(GgufMixture::default())?
        .decoder(
            RopeStyle::Neox,
            Biases::default(),
            true,
            Features::default(),
        )
}
