//! Owns Qwen2-MoE and Qwen1.5-MoE: Qwen2 with mixtures of experts and one that every token passes, by a share of its own.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::gguf_config::GgufConfig;
use crate::gguf_mixture::GgufMixture;
use crate::hf_decoder::{self, Shape};
use crate::mixture_layers::{MixtureLayers, SharedExpert};
use crate::qwen_mixture;
use crate::windows;
use mettle_plan::RopeStyle;
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "qwen2_moe";
pub const GGUF_NAME: &str = "qwen2moe";

/// Configs of transformers before 5 do not name `qkv_bias`: they all have it.
pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let shape = Shape::read(&config)?;
    let features = Features {
        windows: windows::switched(&config, shape.layers)?,
        ..Features::default()
    };
    let biases = Biases {
        qkv: config.flag_or_none("qkv_bias")?.unwrap_or(true),
        ..Biases::default()
    };
    let mixture = MixtureLayers {
        shared: Some(SharedExpert {
            width: config.width("shared_expert_intermediate_size")?,
            gate_is_vector: false,
        }),
        ..qwen_mixture::read(&config)?
    };
    let mut spec = hf_decoder::finish(config, NAME, shape, biases, false, features)?;
    spec.mixture = Some(mixture);
    Ok(spec)
}

/// The files do not say whether shares are normalized; no published model does it.
pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let biases = Biases {
        qkv: true,
        ..Biases::default()
    };
    let kind = GgufMixture {
        normalize: false,
        has_shared: true,
        ..GgufMixture::default()
    };
    GgufConfig::new(GGUF_NAME, metadata, tensors)
        .with_experts(kind)?
        .decoder(RopeStyle::Neox, biases, false, Features::default())
}
