//! Owns the exact tensor names of dense decoders: as transformers writes them and as GGUF files do.

/// The projections and norms of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerTensor {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryNorm,
    KeyNorm,
    Output,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Hf,
    Gguf,
}

impl Names {
    pub fn embedding(self) -> &'static str {
        match self {
            Names::Hf => "model.embed_tokens.weight",
            Names::Gguf => "token_embd.weight",
        }
    }

    /// Without its `.weight`.
    pub fn final_norm(self) -> &'static str {
        match self {
            Names::Hf => "model.norm",
            Names::Gguf => "output_norm",
        }
    }

    pub fn head(self) -> &'static str {
        match self {
            Names::Hf => "lm_head.weight",
            Names::Gguf => "output.weight",
        }
    }

    /// The name without its `.weight` or `.bias`.
    pub fn layer(self, layer: usize, tensor: LayerTensor) -> String {
        match self {
            Names::Hf => format!("model.layers.{layer}.{}", hf(tensor)),
            Names::Gguf => format!("blk.{layer}.{}", gguf(tensor)),
        }
    }
}

fn hf(tensor: LayerTensor) -> &'static str {
    match tensor {
        LayerTensor::AttentionNorm => "input_layernorm",
        LayerTensor::Query => "self_attn.q_proj",
        LayerTensor::Key => "self_attn.k_proj",
        LayerTensor::Value => "self_attn.v_proj",
        LayerTensor::QueryNorm => "self_attn.q_norm",
        LayerTensor::KeyNorm => "self_attn.k_norm",
        LayerTensor::Output => "self_attn.o_proj",
        LayerTensor::FeedForwardNorm => "post_attention_layernorm",
        LayerTensor::Gate => "mlp.gate_proj",
        LayerTensor::Up => "mlp.up_proj",
        LayerTensor::Down => "mlp.down_proj",
    }
}

fn gguf(tensor: LayerTensor) -> &'static str {
    match tensor {
        LayerTensor::AttentionNorm => "attn_norm",
        LayerTensor::Query => "attn_q",
        LayerTensor::Key => "attn_k",
        LayerTensor::Value => "attn_v",
        LayerTensor::QueryNorm => "attn_q_norm",
        LayerTensor::KeyNorm => "attn_k_norm",
        LayerTensor::Output => "attn_output",
        LayerTensor::FeedForwardNorm => "ffn_norm",
        LayerTensor::Gate => "ffn_gate",
        LayerTensor::Up => "ffn_up",
        LayerTensor::Down => "ffn_down",
    }
}
