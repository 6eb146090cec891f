//! Owns gpt-oss: attention sinks, windows in every other layer, YaRN, experts with biases and a clamped activation.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::gguf_config::GgufConfig;
use crate::gguf_mixture::GgufMixture;
use crate::hf_decoder::{self, Shape};
use crate::mixture::Mixture;
use crate::mixture_layers::{MixtureLayers, StoredExperts};
use crate::names::Names;
use crate::rope_config::RopeConfig;
use crate::windows;
use crate::yarn::{Yarn, YarnNumbers};
use mettle_plan::{Activation, RopeStyle, RouteScore};
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "gpt_oss";
pub const GGUF_NAME: &str = "gpt-oss";

/// The first of two layers has the window.
const PERIOD: usize = 2;
/// transformers' default; the published configs do not name it, and GGUF files neither this nor the limit.
const ALPHA: f32 = 1.702;
const LIMIT: f32 = 7.0;

const BIASES: Biases = Biases {
    qkv: true,
    output: true,
    feed_forward: false,
};

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    config.text("model_type")?;
    let stored = StoredExperts::Interleaved {
        transposed: !is_mxfp4(&config)?,
    };
    // The context before it was stretched, which the rotation names too.
    config.ignore(&["initial_context_length"]);
    config.must_be("hidden_act", "silu")?;
    config.must_be("attention_bias", true)?;
    config.must_be("tie_word_embeddings", false)?;
    let head_dim = config.even_count("head_dim")?;
    let (base, yarn) = rotation(&config, head_dim)?;
    let top_k = config.count("num_experts_per_tok")?;
    config.must_be("experts_per_token", top_k)?;
    let width = config.width("intermediate_size")?;
    let mixture = Mixture {
        score: RouteScore::SoftmaxOfTop,
        normalize: false,
        activation: Activation::ClampedSwiglu {
            limit: config.positive("swiglu_limit")?,
            alpha: config.float_or_none("swiglu_alpha")?.unwrap_or(ALPHA),
        },
        ..Mixture::plain(config.count("num_local_experts")?, top_k, width)
    };
    let mixture = MixtureLayers {
        biases: true,
        ..MixtureLayers::new(mixture, stored)
    };
    let mixture = mixture.check(config.name())?;
    let shape = Shape {
        vocab: config.size("vocab_size")?,
        hidden: config.size("hidden_size")?,
        layers: config.size("num_hidden_layers")?,
        heads: config.size("num_attention_heads")?,
        kv_heads: config.size("num_key_value_heads")?,
        head_dim,
        intermediate: width,
        eps: config.float("rms_norm_eps")?,
        rope: RopeConfig {
            base,
            scaling: yarn.scaling.clone(),
            partial: 1.0,
            long: None,
        },
        tied: false,
        context_length: config.size("max_position_embeddings")?,
    };
    let window = config.size("sliding_window")?;
    let features = Features {
        windows: windows::periodic(&config, shape.layers, window, PERIOD)?,
        ..features(&yarn, head_dim)
    };
    let mut spec = hf_decoder::finish(config, NAME, shape, BIASES, false, features)?;
    spec.mixture = Some(mixture);
    Ok(spec)
}

/// Whether the experts are stored as blocks and scales; without, they are dense and their rows are the input.
fn is_mxfp4(config: &Config) -> Result<bool> {
    let Some(quantization) = config.object_or_none("quantization_config")? else {
        return Ok(false);
    };
    if quantization.text("quant_method")? != "mxfp4" {
        return Err(quantization.unsupported("quant_method", "only \"mxfp4\" is"));
    }
    // Everything but the experts, always.
    quantization.ignore(&["modules_to_not_convert"]);
    quantization.finish()?;
    Ok(true)
}

fn rotation(config: &Config, head_dim: usize) -> Result<(f32, Yarn)> {
    let (base, object) = match config.object_or_none("rope_parameters")? {
        Some(parameters) => (parameters.positive("rope_theta")?, parameters),
        None => (
            config.positive("rope_theta")?,
            config.object("rope_scaling")?,
        ),
    };
    let yarn = Yarn::read(&object, base, head_dim)?;
    object.finish()?;
    Ok((base, yarn))
}

fn features(yarn: &Yarn, head_dim: usize) -> Features {
    let factor = yarn.attention_factor;
    Features {
        attention_scale: Some(factor * factor / (head_dim as f32).sqrt()),
        sinks: true,
        ..Features::default()
    }
}

/// The files do not say that the ends of YaRN's ramp are not rounded to whole elements; in all published models it is so.
pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let experts = GgufMixture {
        score: RouteScore::SoftmaxOfTop,
        normalize: false,
        has_shared: false,
        biases: true,
        activation: Activation::ClampedSwiglu {
            limit: LIMIT,
            alpha: ALPHA,
        },
    };
    let mut config = GgufConfig::new(GGUF_NAME, metadata, tensors).with_experts(experts)?;
    let head_dim = config.size("attention.key_length")?;
    let base = config.float("rope.freq_base")?;
    config.must_say("rope.scaling.type", "yarn")?;
    let original = config.size("rope.scaling.original_context_length")?;
    let factor = config.float("rope.scaling.factor")?;
    let default = YarnNumbers::new(factor, original as f32);
    let fast = config.float_or_none("rope.scaling.yarn_beta_fast")?;
    let slow = config.float_or_none("rope.scaling.yarn_beta_slow")?;
    let numbers = YarnNumbers {
        beta_fast: fast.unwrap_or(default.beta_fast),
        beta_slow: slow.unwrap_or(default.beta_slow),
        truncate: false,
        ..default
    };
    let yarn = Yarn::new(&numbers, base, head_dim);
    let window = config.size("attention.sliding_window")?;
    let layers = config.size("block_count")?;
    let features = Features {
        windows: config.periodic_windows(layers, window, PERIOD)?,
        ..features(&yarn, head_dim.max(1))
    };
    config.rope_scaling = Some(yarn.scaling);
    let mut spec = config.decoder(RopeStyle::Neox, BIASES, false, features)?;
    spec.names = Names::GgufGptOss;
    Ok(spec)
}
