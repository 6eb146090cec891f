//! Owns the exact tensor names of T5: as transformers writes them and as GGUF files do.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Hf,
    Gguf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Encoder,
    Decoder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensor {
    AttentionNorm,
    /// `q`, `k`, `v` or `o`.
    Attention(&'static str),
    CrossNorm,
    Cross(&'static str),
    FeedForwardNorm,
    Gate,
    /// Beside a gate.
    Up,
    /// The only one, where there is no gate.
    Wide,
    Down,
}

impl Names {
    /// By any of them a file may call the table that encoder and decoder share.
    pub fn embeddings(self) -> &'static [&'static str] {
        match self {
            Names::Hf => &[
                "shared.weight",
                "encoder.embed_tokens.weight",
                "decoder.embed_tokens.weight",
            ],
            Names::Gguf => &["token_embd.weight"],
        }
    }

    pub fn head(self) -> &'static str {
        match self {
            Names::Hf => "lm_head.weight",
            Names::Gguf => "output.weight",
        }
    }

    /// A bias that the first T5's files hold for cross-attention, which never had one.
    pub fn never_read(self) -> Vec<String> {
        let name = match self {
            Names::Hf => "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
            Names::Gguf => "dec.blk.0.cross_attn_rel_b.weight",
        };
        vec![name.to_owned()]
    }

    /// The bias of the first layer, which all layers use.
    pub fn bias(self, part: Part) -> String {
        let name = match self {
            Names::Hf => "layer.0.SelfAttention.relative_attention_bias",
            Names::Gguf => "attn_rel_b",
        };
        format!("{}.0.{name}.weight", self.blocks(part))
    }

    /// Without its `.weight`.
    pub fn final_norm(self, part: Part) -> &'static str {
        match (self, part) {
            (Names::Hf, Part::Encoder) => "encoder.final_layer_norm",
            (Names::Hf, Part::Decoder) => "decoder.final_layer_norm",
            (Names::Gguf, Part::Encoder) => "enc.output_norm",
            (Names::Gguf, Part::Decoder) => "dec.output_norm",
        }
    }

    /// Without its `.weight`.
    pub fn layer(self, part: Part, layer: usize, tensor: Tensor) -> String {
        let name = match self {
            Names::Hf => hf(part, tensor),
            Names::Gguf => gguf(tensor),
        };
        format!("{}.{layer}.{name}", self.blocks(part))
    }

    fn blocks(self, part: Part) -> &'static str {
        match (self, part) {
            (Names::Hf, Part::Encoder) => "encoder.block",
            (Names::Hf, Part::Decoder) => "decoder.block",
            (Names::Gguf, Part::Encoder) => "enc.blk",
            (Names::Gguf, Part::Decoder) => "dec.blk",
        }
    }
}

fn hf(part: Part, tensor: Tensor) -> String {
    // Cross-attention stands between the two halves of a decoder's layer.
    let last = match part {
        Part::Encoder => 1,
        Part::Decoder => 2,
    };
    let wide = |name: &str| format!("layer.{last}.DenseReluDense.{name}");
    match tensor {
        Tensor::AttentionNorm => "layer.0.layer_norm".into(),
        Tensor::Attention(which) => format!("layer.0.SelfAttention.{which}"),
        Tensor::CrossNorm => "layer.1.layer_norm".into(),
        Tensor::Cross(which) => format!("layer.1.EncDecAttention.{which}"),
        Tensor::FeedForwardNorm => format!("layer.{last}.layer_norm"),
        Tensor::Gate => wide("wi_0"),
        Tensor::Up => wide("wi_1"),
        Tensor::Wide => wide("wi"),
        Tensor::Down => wide("wo"),
    }
}

fn gguf(tensor: Tensor) -> String {
    match tensor {
        Tensor::AttentionNorm => "attn_norm".into(),
        Tensor::Attention(which) => format!("attn_{which}"),
        Tensor::CrossNorm => "cross_attn_norm".into(),
        Tensor::Cross(which) => format!("cross_attn_{which}"),
        Tensor::FeedForwardNorm => "ffn_norm".into(),
        Tensor::Gate => "ffn_gate".into(),
        Tensor::Up | Tensor::Wide => "ffn_up".into(),
        Tensor::Down => "ffn_down".into(),
    }
}
