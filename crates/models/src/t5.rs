//! Owns what a T5 is: an encoder and a decoder with a bias by distance in place of rotations, read from both formats.

use crate::config::Config;
use crate::error::{ModelError, Result};
use crate::gguf_config::GgufConfig;
use crate::t5_names::{Names, Part, Tensor};
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

/// What both configs and GGUF files call it.
pub const NAME: &str = "t5";

/// Where files name no greatest distance: transformers' default, and all that llama.cpp knows.
const MAX_DISTANCE: usize = 128;
/// What T5 was trained with; files that do not say.
const CONTEXT: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub struct T5Spec {
    pub vocab: usize,
    pub hidden: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub width: usize,
    pub encoder_layers: usize,
    pub decoder_layers: usize,
    pub buckets: usize,
    pub max_distance: usize,
    pub eps: f32,
    /// Flan and v1.1: GELU and a gate; the first T5: ReLU alone.
    pub gated: bool,
    /// The head has a tensor of its own.
    pub own_head: bool,
    /// What the head reads is divided by the root of the hidden size (the first T5).
    pub scaled_head: bool,
    pub context_length: usize,
    /// What the decoder's text begins with.
    pub decoder_start: u32,
    pub names: Names,
    /// The embedding's name: files call it by any of its three uses.
    pub embedding: String,
    pub unread: Vec<String>,
}

/// The keys that older files lack have transformers' defaults: a greatest distance of 128, a scaled head that is the
/// embedding, a decoder that starts with padding.
pub fn from_hf(json: &Value) -> Result<T5Spec> {
    let config = Config::new("config.json", json)?;
    config.text("model_type")?;
    config.ignore(&[
        "output_past",
        "is_decoder",
        "tokenizer_class",
        "gradient_checkpointing",
    ]);
    config.must_be("is_encoder_decoder", true)?;
    let gated = match config.text("feed_forward_proj")? {
        "relu" => false,
        "gated-gelu" => true,
        _ => return Err(config.unsupported("feed_forward_proj", "relu and gated-gelu are")),
    };
    config.must_be("is_gated_act", gated)?;
    config.must_be("dense_act_fn", if gated { "gelu_new" } else { "relu" })?;
    let layers = config.layers("num_layers")?;
    let decoder_layers = config.size_or_none("num_decoder_layers")?;
    let max_distance = config.size_or_none("relative_attention_max_distance")?;
    let tied = config.flag_or_none("tie_word_embeddings")?.unwrap_or(true);
    let scaled = config.flag_or_none("scale_decoder_outputs")?;
    let start = match config.size_or_none("decoder_start_token_id")? {
        Some(start) => start,
        None => config.size("pad_token_id")?,
    };
    let spec = T5Spec {
        vocab: config.width("vocab_size")?,
        hidden: config.width("d_model")?,
        heads: config.count("num_heads")?,
        head_dim: config.count("d_kv")?,
        width: config.width("d_ff")?,
        encoder_layers: layers,
        decoder_layers: match decoder_layers {
            Some(_) => config.layers("num_decoder_layers")?,
            None => layers,
        },
        buckets: config.count("relative_attention_num_buckets")?,
        max_distance: max_distance.unwrap_or(MAX_DISTANCE),
        eps: config.float("layer_norm_epsilon")?,
        gated,
        own_head: !tied,
        scaled_head: scaled.unwrap_or(tied),
        context_length: config.size_or_none("n_positions")?.unwrap_or(CONTEXT),
        decoder_start: u32::try_from(start).unwrap_or(u32::MAX),
        names: Names::Hf,
        embedding: Names::Hf.embeddings()[0].to_owned(),
        unread: Vec::new(),
    };
    config.finish()?;
    spec.check("config.json")
}

/// As llama.cpp's converter writes it. No key tells of the feed-forward or the head: the tensors do. A head is scaled
/// unless the file is plainly a later T5, with a gate and a head of its own.
pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<T5Spec> {
    let config = GgufConfig::new(NAME, metadata, tensors);
    let has = |name: String| tensors.find(&format!("{name}.weight")).is_some();
    let gated = has(Names::Gguf.layer(Part::Encoder, 0, Tensor::Gate));
    let own_head = tensors.find(Names::Gguf.head()).is_some();
    let heads = config.size("attention.head_count")?;
    config.must_be("attention.head_count_kv", heads)?;
    let head_dim = config.size("attention.key_length")?;
    config.must_be("attention.value_length", head_dim)?;
    let eps = config.float("attention.layer_norm_rms_epsilon")?;
    // The same number once more, for a norm that T5 has not.
    config.float_or_none("attention.layer_norm_epsilon")?;
    let layers = config.size("block_count")?;
    let start = config.size("decoder_start_token_id")?;
    let spec = T5Spec {
        vocab: config.vocab()?,
        hidden: config.size("embedding_length")?,
        heads,
        head_dim,
        width: config.size("feed_forward_length")?,
        encoder_layers: layers,
        decoder_layers: config
            .size_or_none("decoder_block_count")?
            .unwrap_or(layers),
        buckets: config.size("attention.relative_buckets_count")?,
        max_distance: MAX_DISTANCE,
        eps,
        gated,
        own_head,
        scaled_head: !(gated && own_head),
        context_length: config.size("context_length")?,
        decoder_start: u32::try_from(start).unwrap_or(u32::MAX),
        names: Names::Gguf,
        embedding: Names::Gguf.embeddings()[0].to_owned(),
        unread: Names::Gguf.never_read(),
    };
    config.finish()?;
    spec.check("GGUF metadata")
}

impl T5Spec {
    /// Takes from the file what configs leave open: under which name it has the embedding, and whether it has a head.
    pub fn look_at(&mut self, tensors: &dyn TensorSource) {
        let has = |name: &str| tensors.find(name).is_some();
        let names = self.names.embeddings();
        if let Some(found) = names.iter().find(|name| has(name)) {
            self.embedding = (*found).to_owned();
        }
        // Files may hold the table under its other names besides.
        let others = names.iter().filter(|name| **name != self.embedding);
        self.unread = self.names.never_read();
        self.unread.extend(others.map(|name| (*name).to_owned()));
        self.own_head = has(self.names.head());
    }

    /// Refuses dimensions that no model has, before they become loops and allocations.
    fn check(self, source_name: &str) -> Result<T5Spec> {
        let wrong = |problem: String| {
            Err(ModelError::Dimensions {
                source_name: source_name.to_owned(),
                problem,
            })
        };
        let limits = [
            ("the vocabulary", self.vocab, 1 << 28),
            ("the hidden size", self.hidden, 1 << 20),
            ("the number of heads", self.heads, 1 << 12),
            ("the head size", self.head_dim, 1 << 12),
            ("the feed-forward", self.width, 1 << 20),
            ("the encoder's layers", self.encoder_layers, 2000),
            ("the decoder's layers", self.decoder_layers, 2000),
            ("the buckets of distances", self.buckets, 1 << 12),
            ("the greatest distance", self.max_distance, 1 << 20),
            ("the context", self.context_length, 1 << 31),
        ];
        for (what, size, most) in limits {
            if size == 0 || size > most {
                return wrong(format!("{what} is {size}; it must be 1 to {most}"));
            }
        }
        // Half of the buckets are for one direction in the encoder, half of these for single distances.
        if !self.buckets.is_multiple_of(4) || self.max_distance <= self.buckets / 2 {
            return wrong(format!(
                "{} buckets up to a distance of {}; they must be a multiple of 4, and less than twice as many",
                self.buckets, self.max_distance
            ));
        }
        if self.decoder_start as usize >= self.vocab {
            return wrong(format!(
                "the decoder starts with token {} of a vocabulary of {}",
                self.decoder_start, self.vocab
            ));
        }
        match self.eps.is_finite() && self.eps > 0.0 {
            true => Ok(self),
            false => wrong(format!("the norms' epsilon is {}", self.eps)),
        }
    }
}
