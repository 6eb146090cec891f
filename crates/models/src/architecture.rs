//! Owns the list of architectures that can be run, by the names that configs and GGUF files give them.

use crate::decoder::DecoderSpec;
use crate::error::{ModelError, Result};
use crate::plan_only::gemma3 as gemma3_images;
use crate::{
    bert, gemma2, gemma3, gemma4, gpt_oss, llama, mistral, mixtral, phi3, qwen2, qwen2_moe, qwen3,
    qwen3_moe, t5,
};
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

type FromHf = fn(&Value) -> Result<DecoderSpec>;
type FromGguf = fn(&Metadata, &dyn TensorSource) -> Result<DecoderSpec>;

const FROM_HF: [(&str, FromHf); 13] = [
    (gemma2::NAME, gemma2::from_hf),
    (gemma3_images::NAME, gemma3_images::text_from_hf),
    (gemma3::TEXT_NAME, gemma3::from_hf),
    (gemma4::TEXT_NAME, gemma4::from_hf),
    (gpt_oss::NAME, gpt_oss::from_hf),
    (llama::NAME, llama::from_hf),
    (mistral::NAME, mistral::from_hf),
    (mixtral::NAME, mixtral::from_hf),
    (phi3::NAME, phi3::from_hf),
    (qwen2::NAME, qwen2::from_hf),
    (qwen2_moe::NAME, qwen2_moe::from_hf),
    (qwen3::NAME, qwen3::from_hf),
    (qwen3_moe::NAME, qwen3_moe::from_hf),
];

const FROM_GGUF: [(&str, FromGguf); 10] = [
    (gemma2::NAME, gemma2::from_gguf),
    (gemma3::GGUF_NAME, gemma3::from_gguf),
    (gemma4::GGUF_NAME, gemma4::from_gguf),
    (gpt_oss::GGUF_NAME, gpt_oss::from_gguf),
    (llama::NAME, llama::from_gguf),
    (phi3::NAME, phi3::from_gguf),
    (qwen2::NAME, qwen2::from_gguf),
    (qwen2_moe::GGUF_NAME, qwen2_moe::from_gguf),
    (qwen3::NAME, qwen3::from_gguf),
    (qwen3_moe::GGUF_NAME, qwen3_moe::from_gguf),
];

/// The decoder of a `config.json`.
pub fn decoder_from_hf(json: &Value) -> Result<DecoderSpec> {
    let name = model_type(json)?;
    match FROM_HF.iter().find(|(known, _)| *known == name) {
        Some((_, from_hf)) => from_hf(json),
        None => Err(ModelError::Architecture {
            found: format!("{name} (model_type in config.json)"),
            supported: supported(FROM_HF.map(|(name, _)| name)),
        }),
    }
}

/// The decoder of a GGUF file.
pub fn decoder_from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<DecoderSpec> {
    let name = gguf_architecture(metadata)?;
    match FROM_GGUF.iter().find(|(known, _)| *known == name) {
        Some((_, from_gguf)) => from_gguf(metadata, tensors),
        None => Err(ModelError::Architecture {
            found: format!("{name} (general.architecture in the GGUF file)"),
            supported: supported(FROM_GGUF.map(|(name, _)| name)),
        }),
    }
}

/// The architecture of a GGUF file that holds a model and nothing else.
pub fn gguf_architecture(metadata: &Metadata) -> Result<&str> {
    match metadata.get_str("general.type")?.unwrap_or("model") {
        "model" => Ok(metadata.require_str("general.architecture")?),
        kind => Err(ModelError::Unsupported {
            source_name: "GGUF metadata".into(),
            key: "general.type".into(),
            value: kind.to_owned(),
            supported: "only model is".into(),
        }),
    }
}

/// Decoders and the architectures that are none.
fn supported<const N: usize>(decoders: [&'static str; N]) -> String {
    let mut names = Vec::from(decoders);
    names.extend([bert::NAME, t5::NAME]);
    names.sort_unstable();
    names.join(", ")
}

pub fn model_type(json: &Value) -> Result<&str> {
    json.get("model_type")
        .and_then(Value::as_str)
        .ok_or_else(|| ModelError::MissingKey {
            source_name: "config.json".into(),
            key: "model_type (a string)".into(),
        })
}
