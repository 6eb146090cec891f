//! Owns Mistral, with and without a sliding window. Its GGUF files call themselves `llama`.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::hf_decoder::{self, Shape};
use crate::windows;
use serde_json::Value;

pub const NAME: &str = "mistral";

pub fn from_hf(json: &Value) -> Result<DecoderSpec> {
    let config = Config::new("config.json", json)?;
    let shape = Shape::read(&config)?;
    // transformers' default for an absent key is 4096, so absence is not the same as null.
    if json.get("sliding_window").is_none() {
        return Err(config.missing("sliding_window"));
    }
    let features = Features {
        windows: windows::everywhere(&config, shape.layers)?,
        ..Features::default()
    };
    hf_decoder::finish(config, NAME, shape, Biases::default(), false, features)
}
