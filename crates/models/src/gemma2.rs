//! Owns Gemma 2: norms before and behind each half of a layer, softcaps, a window in every other layer.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::gguf_config::GgufConfig;
use crate::hf_decoder::{self, Shape};
use crate::names::Names;
use crate::rope_config::RopeConfig;
use crate::windows;
use mettle_plan::{Activation, RopeStyle};
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "gemma2";

/// The first of two layers has the window.
const PERIOD: usize = 2;
/// Of the 27B model, whose heads are scaled by hidden size / heads. GGUF files do not say so.
const LARGEST_LAYERS: usize = 46;

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    hf_decoder::ignore_quantization(&config)?;
    activation(&config)?;
    config.must_be("attention_bias", false)?;
    config.must_be("use_bidirectional_attention", false)?;
    config.ignore(&["cache_implementation"]);
    let shape = Shape {
        vocab: config.size("vocab_size")?,
        hidden: config.size("hidden_size")?,
        layers: config.size("num_hidden_layers")?,
        heads: config.size("num_attention_heads")?,
        kv_heads: config.size("num_key_value_heads")?,
        head_dim: config.size("head_dim")?,
        intermediate: config.size("intermediate_size")?,
        eps: config.float("rms_norm_eps")?,
        rope: RopeConfig::from_hf(&config)?,
        tied: config.flag_or_none("tie_word_embeddings")?.unwrap_or(true),
        context_length: config.size("max_position_embeddings")?,
    };
    let window = config.size("sliding_window")?;
    let features = Features {
        attention_scale: Some(config.positive("query_pre_attn_scalar")?.sqrt().recip()),
        attention_softcap: config.float_or_none("attn_logit_softcapping")?,
        final_softcap: config.float_or_none("final_logit_softcapping")?,
        windows: windows::periodic(&config, shape.layers, window, PERIOD)?,
        ..features(shape.hidden, 1.0)
    };
    let mut spec = hf_decoder::finish(config, NAME, shape, Biases::default(), false, features)?;
    spec.names = Names::HfGemma("model");
    spec.unread = hf_decoder::unread(&spec);
    Ok(spec)
}

/// What Gemma 2 and 3 have in common. `norm_offset` is 0 in GGUF files: the converter adds the 1.
pub fn features(hidden: usize, norm_offset: f32) -> Features {
    Features {
        activation: Activation::GeluTanh,
        norm_offset,
        post_norms: true,
        embedding_scale: (hidden as f32).sqrt(),
        ..Features::default()
    }
}

/// Old configs name it twice; transformers follows `hidden_activation`, or the default.
pub fn activation(config: &Config) -> Result<()> {
    config.ignore(&["hidden_act"]);
    config.must_be("hidden_activation", "gelu_pytorch_tanh")
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let config = GgufConfig::new(NAME, metadata, tensors);
    let (layers, hidden) = (
        config.size("block_count")?,
        config.size("embedding_length")?,
    );
    // llama.cpp's default, the published models' window.
    let window = config.size_or_none("attention.sliding_window")?;
    let features = Features {
        attention_scale: largest_scale(&config, layers, LARGEST_LAYERS)?,
        attention_softcap: config.float_or_none("attn_logit_softcapping")?,
        final_softcap: config.float_or_none("final_logit_softcapping")?,
        windows: config.periodic_windows(layers, window.unwrap_or(4096), PERIOD)?,
        ..features(hidden, 0.0)
    };
    config.decoder(RopeStyle::Neox, Biases::default(), false, features)
}

/// The scale of the family's largest model, known by its layers: all others' follows from the head size.
pub fn largest_scale(config: &GgufConfig, layers: usize, largest: usize) -> Result<Option<f32>> {
    let heads = config.size("attention.head_count")?.max(1);
    let hidden = config.size("embedding_length")?;
    Ok((layers == largest).then(|| ((hidden / heads) as f32).sqrt().recip()))
}
