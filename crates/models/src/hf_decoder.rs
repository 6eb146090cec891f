//! Owns what the `config.json` files of all dense decoders say in the same words.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::names::{LayerTensor, Names};
use crate::rope_config::RopeConfig;
use mettle_plan::RopeStyle;

/// The dimensions that every such config names.
pub struct Shape {
    vocab: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    intermediate: usize,
    eps: f32,
    rope: RopeConfig,
    tied: bool,
    context_length: usize,
}

impl Shape {
    /// Absent keys mean what they mean to transformers: as many KV heads as heads, heads that share the hidden size
    /// among them, an untied head. All else must be there.
    pub fn read(config: &Config) -> Result<Shape> {
        config.text("model_type")?;
        // The weights' own matter, which refuse what they cannot read.
        config.ignore(&["quantization", "quantization_config"]);
        match config.text("hidden_act")? {
            "silu" => {}
            _ => return Err(config.unsupported("hidden_act", "only \"silu\" is")),
        }
        let hidden = config.size("hidden_size")?;
        let heads = config.size("num_attention_heads")?;
        let head_dim = config.size_or_none("head_dim")?;
        Ok(Shape {
            vocab: config.size("vocab_size")?,
            hidden,
            layers: config.size("num_hidden_layers")?,
            heads,
            kv_heads: config.size_or_none("num_key_value_heads")?.unwrap_or(heads),
            head_dim: head_dim.unwrap_or(hidden / heads.max(1)),
            intermediate: config.size("intermediate_size")?,
            eps: config.float("rms_norm_eps")?,
            rope: RopeConfig::from_hf(config)?,
            tied: config.flag_or_none("tie_word_embeddings")?.unwrap_or(false),
            context_length: config.size("max_position_embeddings")?,
        })
    }
}

/// The Qwen way: windows are switched on by `use_sliding_window`, and newer configs list every layer's kind.
pub fn refuse_windows(config: &Config) -> Result<()> {
    if config.flag_or_none("use_sliding_window")? == Some(true) {
        let later = "windows come later; only false is";
        return Err(config.unsupported("use_sliding_window", later));
    }
    // Without use_sliding_window they have no effect.
    config.ignore(&["sliding_window", "max_window_layers"]);
    let kinds = config.texts_or_none("layer_types")?.unwrap_or_default();
    match kinds.iter().all(|kind| *kind == "full_attention") {
        true => Ok(()),
        false => Err(config.unsupported("layer_types", "only full_attention is")),
    }
}

/// The Mistral way: a number is a window.
pub fn refuse_short_window(config: &Config, shape: &Shape) -> Result<()> {
    match config.size_or_none("sliding_window")? {
        Some(window) if window < shape.context_length => {
            let later = format!(
                "windows come later; only null or at least the context of {} is",
                shape.context_length
            );
            Err(config.unsupported("sliding_window", later))
        }
        _ => Ok(()),
    }
}

/// Refuses unknown keys and absurd dimensions.
pub fn finish(
    config: Config,
    architecture: &'static str,
    shape: Shape,
    biases: Biases,
    qk_norm: bool,
) -> Result<DecoderSpec> {
    let source_name = config.name().to_owned();
    config.finish()?;
    let spec = DecoderSpec {
        architecture,
        vocab: shape.vocab,
        hidden: shape.hidden,
        layers: shape.layers,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        intermediate: shape.intermediate,
        eps: shape.eps,
        rope_base: shape.rope.base,
        rope_scaling: shape.rope.scaling,
        rope_style: RopeStyle::Neox,
        biases,
        qk_norm,
        tied: shape.tied,
        context_length: shape.context_length,
        names: Names::Hf,
        unread: Vec::new(),
    };
    let mut spec = spec.check(&source_name)?;
    spec.unread = unread(&spec);
    Ok(spec)
}

/// A tied head may be stored all the same, and old files hold the rotary frequencies, which follow from the config.
fn unread(spec: &DecoderSpec) -> Vec<String> {
    let query = |layer| spec.names.layer(layer, LayerTensor::Query);
    let mut names: Vec<String> = (0..spec.layers)
        .map(|layer| query(layer).replace("q_proj", "rotary_emb.inv_freq"))
        .collect();
    if spec.tied {
        names.push(spec.names.head().to_owned());
    }
    names
}
