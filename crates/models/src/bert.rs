//! Owns BERT and its kin (MiniLM, BGE): an encoder that sees a text at once and gives a vector for each token.

use crate::bert_names::BertNames;
use crate::config::Config;
use crate::decoder::MOST_LAYERS;
use crate::error::{ModelError, Result};
use crate::gguf_config::GgufConfig;
use crate::hf_decoder::ignore_quantization;
use crate::sentence::Sentence;
use mettle_plan::{Activation, Pooling};
use mettle_tensor::TensorSource;
use mettle_weights::Metadata;
use serde_json::Value;

pub const NAME: &str = "bert";

#[derive(Clone, Debug, PartialEq)]
pub struct BertSpec {
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub intermediate: usize,
    pub activation: Activation,
    pub eps: f32,
    /// Rows of the table of positions.
    pub context_length: usize,
    /// Kinds of tokens (the first text of a pair, the second); all tokens here are of the first.
    pub token_types: usize,
    pub names: BertNames,
    /// What the weights' file says of the way to one vector; a folder has files of its own for that.
    pub sentence: Sentence,
}

pub fn from_hf(json: &Value) -> Result<BertSpec> {
    let config = Config::new("config.json", json)?;
    ignore_quantization(&config)?;
    config.ignore(&[
        "attention_probs_dropout_prob",
        "directionality",
        "gradient_checkpointing",
        "hidden_dropout_prob",
        // The pooler is not read.
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        // Nor is the head.
        "tie_word_embeddings",
    ]);
    config.must_be("position_embedding_type", "absolute")?;
    config.must_be("is_decoder", false)?;
    config.must_be("add_cross_attention", false)?;
    config.must_be("is_encoder_decoder", false)?;
    config.must_be("chunk_size_feed_forward", 0)?;
    let activation = match config.text("hidden_act")? {
        "gelu" => Activation::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
        "relu" => Activation::Relu,
        _ => return Err(config.unsupported("hidden_act", "gelu, gelu_new and relu are")),
    };
    let spec = BertSpec {
        vocab: config.width("vocab_size")?,
        hidden: config.width("hidden_size")?,
        layers: config.layers("num_hidden_layers")?,
        heads: config.count("num_attention_heads")?,
        intermediate: config.width("intermediate_size")?,
        activation,
        eps: config.positive("layer_norm_eps")?,
        context_length: config.width("max_position_embeddings")?,
        token_types: config.count("type_vocab_size")?,
        names: BertNames::Hf {
            prefix: "",
            old_norms: false,
        },
        sentence: Sentence::default(),
    };
    config.finish()?;
    spec.check(config.name())
}

pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<BertSpec> {
    let config = GgufConfig::new(NAME, metadata, tensors);
    if metadata.get_bool("bert.attention.causal")? == Some(true) {
        return Err(config.unsupported("attention.causal", true, "only false is"));
    }
    config.ignore("attention.causal");
    let pooling = match config.size_or_none("pooling_type")? {
        // A file that names none leaves the choice to us.
        None | Some(0) => None,
        Some(1) => Some(Pooling::Mean),
        Some(2) => Some(Pooling::First),
        Some(3) => Some(Pooling::Last),
        Some(other) => {
            let supported = "0 (none), 1 (mean), 2 (cls) and 3 (last) are";
            return Err(config.unsupported("pooling_type", other, supported));
        }
    };
    let names = BertNames::Gguf;
    let types = tensors.find(&names.token_types());
    let types = types.and_then(|index| tensors.tensors()[index].shape.first().copied());
    let spec = BertSpec {
        vocab: config.vocab()?,
        hidden: config.size("embedding_length")?,
        layers: config.size("block_count")?,
        heads: config.size("attention.head_count")?,
        intermediate: config.size("feed_forward_length")?,
        // The files do not say. Every BERT was trained with this one.
        activation: Activation::Gelu,
        eps: config.float("attention.layer_norm_epsilon")?,
        context_length: config.size("context_length")?,
        token_types: types.unwrap_or(0),
        names,
        sentence: Sentence {
            pooling,
            ..Sentence::default()
        },
    };
    config.must_be("attention.head_count_kv", spec.heads)?;
    config.finish()?;
    spec.check("GGUF metadata")
}

impl BertSpec {
    /// Refuses dimensions that no model has, before they become loops and allocations.
    fn check(self, source_name: &str) -> Result<BertSpec> {
        const LARGEST: usize = 1 << 20;
        let dimensions = [
            ("vocabulary size", self.vocab, LARGEST),
            ("hidden size", self.hidden, LARGEST),
            ("layers", self.layers, MOST_LAYERS),
            ("attention heads", self.heads, self.hidden),
            ("feed-forward size", self.intermediate, LARGEST),
            ("context length", self.context_length, LARGEST),
            ("token types", self.token_types, LARGEST),
        ];
        let wrong = |problem: String| ModelError::Dimensions {
            source_name: source_name.to_owned(),
            problem,
        };
        for (what, size, most) in dimensions {
            if size == 0 || size > most {
                return Err(wrong(format!("{what} is {size}; it must be 1 to {most}")));
            }
        }
        if !self.hidden.is_multiple_of(self.heads) {
            let (hidden, heads) = (self.hidden, self.heads);
            return Err(wrong(format!(
                "{heads} heads do not share a width of {hidden}"
            )));
        }
        if !(self.eps.is_finite() && self.eps > 0.0) {
            return Err(wrong(format!("the norms' epsilon is {}", self.eps)));
        }
        Ok(self)
    }

    /// A folder's weights have one of several prefixes and names of norms, of which its config says nothing.
    pub fn look_at(&mut self, tensors: &dyn TensorSource) {
        if let BertNames::Hf { .. } = self.names {
            self.names = BertNames::of_file(tensors);
        }
    }
}
