//! Owns Mixtral: Mistral with a mixture of experts in every layer. Its GGUF files call themselves `llama`.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::hf_decoder::{self, Shape};
use crate::mixture::Mixture;
use crate::mixture_layers::{MixtureLayers, StoredExperts};
use crate::windows;
use serde_json::Value;

pub const NAME: &str = "mixtral";

/// Unlike Mistral's, an absent window means none to transformers.
pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let shape = Shape::read(&config)?;
    let features = Features {
        windows: windows::everywhere(&config, shape.layers)?,
        ..Features::default()
    };
    // Noise of training.
    config.ignore(&["router_jitter_noise"]);
    let mixture = Mixture::plain(
        config.count("num_local_experts")?,
        config.count("num_experts_per_tok")?,
        config.width("intermediate_size")?,
    );
    mixture.check_stored_one_by_one(&config, config.layers("num_hidden_layers")?)?;
    let mixture = MixtureLayers::new(mixture, StoredExperts::Mixtral).check(config.name())?;
    let mut spec = hf_decoder::finish(config, NAME, shape, Biases::default(), false, features)?;
    spec.mixture = Some(mixture);
    Ok(spec)
}
