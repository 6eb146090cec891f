//! Owns the exact tensor names of BERT: as transformers wrote them over the years and as GGUF files do.

use mettle_tensor::TensorSource;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BertNames {
    Hf {
        /// `bert.` where the encoder lies beside a head.
        prefix: &'static str,
        /// Norms have `gamma` and `beta`.
        old_norms: bool,
    },
    Gguf,
}

/// The projections of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BertLinear {
    Query,
    Key,
    Value,
    Output,
    Up,
    Down,
}

/// The norm behind each half of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BertNorm {
    Attention,
    FeedForward,
}

const OLD_NORM: &str = "embeddings.LayerNorm.gamma";
const WORDS: &str = "embeddings.word_embeddings.weight";

impl BertNames {
    /// The names in a file of transformers'.
    pub fn of_file(tensors: &dyn TensorSource) -> BertNames {
        let has = |prefix: &str, name: &str| tensors.find(&format!("{prefix}{name}")).is_some();
        let prefix = if has("bert.", WORDS) { "bert." } else { "" };
        BertNames::Hf {
            prefix,
            old_norms: has(prefix, OLD_NORM),
        }
    }

    fn table(self, hf: &str, gguf: &str) -> String {
        match self {
            BertNames::Hf { prefix, .. } => format!("{prefix}embeddings.{hf}_embeddings.weight"),
            BertNames::Gguf => format!("{gguf}.weight"),
        }
    }

    pub fn words(self) -> String {
        self.table("word", "token_embd")
    }

    pub fn positions(self) -> String {
        self.table("position", "position_embd")
    }

    pub fn token_types(self) -> String {
        self.table("token_type", "token_types")
    }

    /// The weight and the bias.
    pub fn embedding_norm(self) -> [String; 2] {
        match self {
            BertNames::Hf { .. } => self.hf_norm("embeddings"),
            BertNames::Gguf => weight_and_bias("token_embd_norm"),
        }
    }

    /// The weight and the bias.
    pub fn norm(self, layer: usize, norm: BertNorm) -> [String; 2] {
        match (self, norm) {
            (BertNames::Hf { .. }, BertNorm::Attention) => {
                self.hf_norm(&format!("encoder.layer.{layer}.attention.output"))
            }
            (BertNames::Hf { .. }, BertNorm::FeedForward) => {
                self.hf_norm(&format!("encoder.layer.{layer}.output"))
            }
            (BertNames::Gguf, BertNorm::Attention) => {
                weight_and_bias(&format!("blk.{layer}.attn_output_norm"))
            }
            (BertNames::Gguf, BertNorm::FeedForward) => {
                weight_and_bias(&format!("blk.{layer}.layer_output_norm"))
            }
        }
    }

    fn hf_norm(self, of: &str) -> [String; 2] {
        match self {
            BertNames::Hf { prefix, old_norms } => {
                let parts = match old_norms {
                    true => ["gamma", "beta"],
                    false => ["weight", "bias"],
                };
                parts.map(|part| format!("{prefix}{of}.LayerNorm.{part}"))
            }
            BertNames::Gguf => unreachable!("asked for a folder's names only"),
        }
    }

    /// Without `.weight` and `.bias`.
    pub fn linear(self, layer: usize, linear: BertLinear) -> String {
        let (hf, gguf) = match linear {
            BertLinear::Query => ("attention.self.query", "attn_q"),
            BertLinear::Key => ("attention.self.key", "attn_k"),
            BertLinear::Value => ("attention.self.value", "attn_v"),
            BertLinear::Output => ("attention.output.dense", "attn_output"),
            BertLinear::Up => ("intermediate.dense", "ffn_up"),
            BertLinear::Down => ("output.dense", "ffn_down"),
        };
        match self {
            BertNames::Hf { prefix, .. } => format!("{prefix}encoder.layer.{layer}.{hf}"),
            BertNames::Gguf => format!("blk.{layer}.{gguf}"),
        }
    }

    /// What a file may hold that makes no embeddings: the pooler, and the heads of pre-training. Not a classifier's head:
    /// whoever has one wants its scores.
    pub fn unread(self) -> Vec<String> {
        let BertNames::Hf { prefix, .. } = self else {
            return Vec::new();
        };
        let heads = [
            "cls.predictions.bias",
            "cls.predictions.decoder.bias",
            "cls.predictions.decoder.weight",
            "cls.predictions.transform.LayerNorm.beta",
            "cls.predictions.transform.LayerNorm.bias",
            "cls.predictions.transform.LayerNorm.gamma",
            "cls.predictions.transform.LayerNorm.weight",
            "cls.predictions.transform.dense.bias",
            "cls.predictions.transform.dense.weight",
            "cls.seq_relationship.bias",
            "cls.seq_relationship.weight",
        ];
        let pooler = ["pooler.dense.weight", "pooler.dense.bias"];
        let pooler = pooler.map(|name| format!("{prefix}{name}"));
        heads.map(str::to_owned).into_iter().chain(pooler).collect()
    }
}

fn weight_and_bias(name: &str) -> [String; 2] {
    ["weight", "bias"].map(|part| format!("{name}.{part}"))
}
