//! Owns the exact tensor names of decoders: as transformers writes them and as GGUF files do.

/// The projections and norms of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerTensor {
    AttentionNorm,
    Query,
    Key,
    Value,
    /// The three above in one tensor.
    QueryKeyValue,
    QueryNorm,
    KeyNorm,
    Output,
    PostAttentionNorm,
    FeedForwardNorm,
    Gate,
    Up,
    /// The two above in one tensor.
    GateUp,
    Down,
    PostFeedForwardNorm,
    /// Of what a layer's own embedding adds.
    InputGate,
    InputProjection,
    InputNorm,
    /// One number, with its whole name.
    Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Hf,
    /// With norms before and behind each half of a layer. The text model's prefix: `model`, or longer where it is one
    /// of several.
    HfGemma(&'static str),
    Gguf,
    /// The norm between attention and experts is called by what it follows.
    GgufGptOss,
}

impl Names {
    fn prefix(self) -> &'static str {
        match self {
            Names::Hf => "model",
            Names::HfGemma(prefix) => prefix,
            Names::Gguf | Names::GgufGptOss => "",
        }
    }

    pub fn embedding(self) -> String {
        match self {
            Names::Hf | Names::HfGemma(_) => format!("{}.embed_tokens.weight", self.prefix()),
            Names::Gguf | Names::GgufGptOss => "token_embd.weight".to_owned(),
        }
    }

    /// Without its `.weight`.
    pub fn final_norm(self) -> String {
        match self {
            Names::Hf | Names::HfGemma(_) => format!("{}.norm", self.prefix()),
            Names::Gguf | Names::GgufGptOss => "output_norm".to_owned(),
        }
    }

    pub fn head(self) -> &'static str {
        match self {
            Names::HfGemma("language_model.model") => "language_model.lm_head.weight",
            Names::Hf | Names::HfGemma(_) => "lm_head.weight",
            Names::Gguf | Names::GgufGptOss => "output.weight",
        }
    }

    /// What each layer gets of a token by itself: the embedding, the projection of the token's embedding and its norm.
    pub fn per_layer(self) -> [String; 3] {
        let names = match self {
            Names::Hf | Names::HfGemma(_) => [
                "embed_tokens_per_layer",
                "per_layer_model_projection",
                "per_layer_projection_norm",
            ],
            Names::Gguf | Names::GgufGptOss => {
                return [
                    "per_layer_token_embd",
                    "per_layer_model_proj",
                    "per_layer_proj_norm",
                ]
                .map(str::to_owned);
            }
        };
        names.map(|name| format!("{}.{name}", self.prefix()))
    }

    /// The name without its `.weight` or `.bias`.
    pub fn layer(self, layer: usize, tensor: LayerTensor) -> String {
        let name = match self {
            Names::Hf => hf(tensor),
            Names::HfGemma(_) => gemma(tensor),
            Names::Gguf => return format!("blk.{layer}.{}", gguf(tensor)),
            Names::GgufGptOss => return format!("blk.{layer}.{}", gguf_gpt_oss(tensor)),
        };
        format!("{}.layers.{layer}.{name}", self.prefix())
    }

    /// The whole name of the sinks of a layer's heads.
    pub fn sinks(self, layer: usize) -> String {
        match self {
            Names::Hf | Names::HfGemma(_) => {
                format!("{}.layers.{layer}.self_attn.sinks", self.prefix())
            }
            Names::Gguf | Names::GgufGptOss => format!("blk.{layer}.attn_sinks.weight"),
        }
    }
}

fn hf(tensor: LayerTensor) -> &'static str {
    match tensor {
        LayerTensor::AttentionNorm => "input_layernorm",
        LayerTensor::Query => "self_attn.q_proj",
        LayerTensor::Key => "self_attn.k_proj",
        LayerTensor::Value => "self_attn.v_proj",
        LayerTensor::QueryKeyValue => "self_attn.qkv_proj",
        LayerTensor::QueryNorm => "self_attn.q_norm",
        LayerTensor::KeyNorm => "self_attn.k_norm",
        LayerTensor::Output => "self_attn.o_proj",
        LayerTensor::FeedForwardNorm => "post_attention_layernorm",
        LayerTensor::Gate => "mlp.gate_proj",
        LayerTensor::Up => "mlp.up_proj",
        LayerTensor::GateUp => "mlp.gate_up_proj",
        LayerTensor::Down => "mlp.down_proj",
        LayerTensor::InputGate => "per_layer_input_gate",
        LayerTensor::InputProjection => "per_layer_projection",
        LayerTensor::InputNorm => "post_per_layer_input_norm",
        LayerTensor::Scale => "layer_scalar",
        LayerTensor::PostAttentionNorm | LayerTensor::PostFeedForwardNorm => {
            unreachable!("only Gemma has norms behind")
        }
    }
}

fn gemma(tensor: LayerTensor) -> &'static str {
    match tensor {
        LayerTensor::PostAttentionNorm => "post_attention_layernorm",
        LayerTensor::FeedForwardNorm => "pre_feedforward_layernorm",
        LayerTensor::PostFeedForwardNorm => "post_feedforward_layernorm",
        other => hf(other),
    }
}

fn gguf_gpt_oss(tensor: LayerTensor) -> &'static str {
    match tensor {
        LayerTensor::FeedForwardNorm => "post_attention_norm",
        other => gguf(other),
    }
}

fn gguf(tensor: LayerTensor) -> &'static str {
    match tensor {
        LayerTensor::AttentionNorm => "attn_norm",
        LayerTensor::Query => "attn_q",
        LayerTensor::Key => "attn_k",
        LayerTensor::Value => "attn_v",
        LayerTensor::QueryKeyValue => "attn_qkv",
        LayerTensor::QueryNorm => "attn_q_norm",
        LayerTensor::KeyNorm => "attn_k_norm",
        LayerTensor::Output => "attn_output",
        LayerTensor::PostAttentionNorm => "post_attention_norm",
        LayerTensor::FeedForwardNorm => "ffn_norm",
        LayerTensor::Gate => "ffn_gate",
        // Where both are in one, llama.cpp calls it by the second.
        LayerTensor::Up | LayerTensor::GateUp => "ffn_up",
        LayerTensor::Down => "ffn_down",
        LayerTensor::PostFeedForwardNorm => "post_ffw_norm",
        LayerTensor::InputGate => "inp_gate",
        LayerTensor::InputProjection => "proj",
        LayerTensor::InputNorm => "post_norm",
        LayerTensor::Scale => "layer_output_scale.weight",
    }
}
