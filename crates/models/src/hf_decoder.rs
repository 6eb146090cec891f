//! Owns what the `config.json` files of all dense decoders say in the same words.

use crate::config::Config;
use crate::decoder::{Biases, DecoderSpec};
use crate::error::Result;
use crate::features::Features;
use crate::names::{LayerTensor, Names};
use crate::rope_config::RopeConfig;
use mettle_plan::RopeStyle;

/// The dimensions that every such config names.
pub struct Shape {
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub intermediate: usize,
    pub eps: f32,
    pub rope: RopeConfig,
    pub tied: bool,
    pub context_length: usize,
}

impl Shape {
    /// Absent keys mean what they mean to transformers: as many KV heads as heads, heads that share the hidden size
    /// among them, an untied head. All else must be there.
    pub fn read(config: &Config) -> Result<Shape> {
        ignore_quantization(config)?;
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

/// The weights' own matter, which refuse what they cannot read.
pub fn ignore_quantization(config: &Config) -> Result<()> {
    config.text("model_type")?;
    config.ignore(&["quantization", "quantization_config"]);
    Ok(())
}

/// Refuses unknown keys and absurd dimensions.
pub fn finish(
    config: Config,
    architecture: &'static str,
    shape: Shape,
    biases: Biases,
    qk_norm: bool,
    features: Features,
) -> Result<DecoderSpec> {
    let source_name = config.name().to_owned();
    config.finish()?;
    let rotated = (shape.head_dim as f32 * shape.rope.partial) as usize;
    let long_rope = shape.rope.long;
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
        rope_scaling: match &long_rope {
            Some(long) => long.scaling(shape.context_length),
            None => shape.rope.scaling,
        },
        rope_style: RopeStyle::Neox,
        biases,
        qk_norm,
        tied: shape.tied,
        context_length: shape.context_length,
        names: Names::Hf,
        unread: Vec::new(),
        features: Features {
            rotated: (rotated != shape.head_dim).then_some(rotated),
            rope_magnitude: long_rope.as_ref().map_or(1.0, |long| long.magnitude),
            long_rope,
            ..features
        },
        mixture: None,
    };
    let mut spec = spec.check(&source_name)?;
    spec.unread = unread(&spec);
    Ok(spec)
}

/// A tied head may be stored all the same, and old files hold the rotary frequencies, which follow from the config.
pub fn unread(spec: &DecoderSpec) -> Vec<String> {
    let query = |layer| spec.names.layer(layer, LayerTensor::Query);
    let mut names: Vec<String> = (0..spec.layers)
        .map(|layer| query(layer).replace("q_proj", "rotary_emb.inv_freq"))
        .collect();
    if spec.tied {
        names.push(spec.names.head().to_owned());
    }
    names
}
