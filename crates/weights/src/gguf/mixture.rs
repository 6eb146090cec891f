//! Owns the choice of each tensor's type in a quantized file. The mixtures are llama.cpp's, so that a name says the same
//! of a file whoever made it (fixtures/quantize/mixtures.json holds its choices).

use super::{FileType, Metadata};
use crate::error::Result;
use mettle_tensor::{DType, TensorInfo};
use std::collections::BTreeSet;

/// Parts of names of matrices that stay as they are: small, or too dear to lose anything.
const KEPT: [&str; 35] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    "position_embd",
    "token_types",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// What a tensor is for, as far as mixtures tell tensors apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Output,
    Embedding,
    /// Values, alone or together with queries and keys: errors in them cost most.
    Values,
    Keys,
    AttentionOutput,
    Down,
    Other,
}

impl Role {
    fn of(name: &str) -> Role {
        let has = |part: &str| name.contains(part);
        match name {
            "output.weight" => Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embedding,
            _ if has("attn_qkv.weight") || has("attn_kv_b.weight") || has("attn_v.weight") => {
                Role::Values
            }
            _ if has("attn_k.weight") => Role::Keys,
            _ if has("attn_output.weight") => Role::AttentionOutput,
            _ if has("ffn_down") => Role::Down,
            _ => Role::Other,
        }
    }
}

/// The facts of a model that mixtures ask for.
#[derive(Debug)]
pub struct Mixture {
    file_type: FileType,
    layers: usize,
    /// Heads that share a key and value head.
    group: u64,
    experts: u64,
    is_tied: bool,
    /// Layers with a tensor of role `Values`.
    value_layers: BTreeSet<usize>,
}

impl Mixture {
    pub fn new(
        file_type: FileType,
        metadata: &Metadata,
        tensors: &[TensorInfo],
    ) -> Result<Mixture> {
        let architecture = metadata.get_str("general.architecture")?.unwrap_or("");
        // Some models count heads by layer; the first layer speaks for all.
        let number = |key: &str| {
            let key = format!("{architecture}.{key}");
            match metadata.get_i64s(&key) {
                Ok(Some(values)) => Ok(values.first().and_then(|v| u64::try_from(*v).ok())),
                _ => metadata.get_u64(&key),
            }
        };
        let heads = number("attention.head_count")?.unwrap_or(0);
        let value_layer = |t: &TensorInfo| match Role::of(&t.name) {
            Role::Values => layer(&t.name),
            _ => None,
        };
        Ok(Mixture {
            file_type,
            layers: number("block_count")?.unwrap_or(0) as usize,
            group: heads / number("attention.head_count_kv")?.unwrap_or(heads).max(1),
            experts: number("expert_count")?.unwrap_or(0),
            is_tied: !tensors.iter().any(|t| t.name == "output.weight"),
            value_layers: tensors.iter().filter_map(value_layer).collect(),
        })
    }

    /// The type that a tensor gets; its own where it stays as it is.
    pub fn choose(&self, tensor: &TensorInfo) -> DType {
        let name = tensor.name.as_str();
        let is_kept = tensor.shape.len() < 2
            || !name.ends_with("weight")
            || KEPT.iter().any(|part| name.contains(part));
        if is_kept {
            return tensor.dtype;
        }
        let main = self.file_type.main();
        if !main.is_quantized() {
            return main;
        }
        let columns = tensor.shape[tensor.shape.len() - 1];
        let wanted = match Role::of(name) {
            Role::Output => self.output(columns),
            Role::Embedding if self.is_tied => self.output(columns),
            Role::Values => self.values(layer(name)),
            Role::Keys if self.experts == 8 => DType::Q8_0,
            Role::AttentionOutput => self.attention_output(),
            Role::Down => self.down(layer(name).unwrap_or(0)),
            _ => main,
        };
        whole_blocks(wanted, columns)
    }

    fn output(&self, columns: usize) -> DType {
        let main = self.file_type.main();
        match main == DType::Q8_0 || !columns.is_multiple_of(main.block_len()) {
            true => DType::Q8_0,
            false => DType::Q6_K,
        }
    }

    fn values(&self, layer: Option<usize>) -> DType {
        if self.experts == 8 {
            return DType::Q8_0;
        }
        let index = layer.map_or(0, |layer| self.value_layers.range(..layer).count());
        let more = more_bits(index, self.value_layers.len());
        let chosen = match self.file_type {
            FileType::Q2_K if self.group >= 4 => DType::Q4_K,
            FileType::Q2_K => DType::Q3_K,
            FileType::Q3_K_M if index >= 2 => DType::Q4_K,
            FileType::Q3_K_M | FileType::Q3_K_L => DType::Q5_K,
            FileType::Q4_K_S if index < 4 => DType::Q5_K,
            FileType::IQ4_NL | FileType::IQ4_XS if self.group >= 4 => DType::Q5_K,
            FileType::Q4_K_M | FileType::Q5_K_M if more => DType::Q6_K,
            other => other.main(),
        };
        // Of a 70B Llama: values are an eighth of the queries' size, so that more bits cost next to nothing.
        let is_70b = self.layers == 80 && self.group > 1;
        match chosen {
            DType::Q3_K | DType::Q4_K if is_70b => DType::Q5_K,
            chosen => chosen,
        }
    }

    fn down(&self, layer: usize) -> DType {
        let more = more_bits(layer, self.layers);
        let is_early = layer < self.layers / 8;
        match self.file_type {
            FileType::Q2_K => DType::Q3_K,
            FileType::Q3_K_M if layer < self.layers / 16 => DType::Q5_K,
            FileType::Q3_K_M => DType::Q4_K,
            FileType::Q3_K_L => DType::Q5_K,
            FileType::Q4_K_M | FileType::Q5_K_M if more => DType::Q6_K,
            FileType::Q4_K_S | FileType::IQ4_NL | FileType::IQ4_XS if is_early => DType::Q5_K,
            other => other.main(),
        }
    }

    fn attention_output(&self) -> DType {
        let is_mixtral = self.experts == 8;
        match self.file_type {
            FileType::Q2_K | FileType::Q3_K_S | FileType::Q3_K_M if is_mixtral => DType::Q5_K,
            FileType::Q4_K_S | FileType::Q4_K_M if is_mixtral => DType::Q5_K,
            FileType::IQ4_NL | FileType::IQ4_XS if is_mixtral => DType::Q5_K,
            FileType::Q2_K => DType::Q3_K,
            FileType::Q3_K_M => DType::Q4_K,
            FileType::Q3_K_L if !is_mixtral => DType::Q5_K,
            other => other.main(),
        }
    }
}

/// The first and the last eighth of the layers, and every third between.
fn more_bits(index: usize, count: usize) -> bool {
    let eighth = count / 8;
    index < eighth || index >= 7 * count / 8 || (index - eighth) % 3 == 2
}

/// The number in `blk.N.`, whatever is before it.
fn layer(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("blk.")?;
    rest.split_once('.')?.0.parse().ok()
}

/// The type itself, or for rows that are no whole number of its blocks one of 32 elements or none.
fn whole_blocks(dtype: DType, columns: usize) -> DType {
    let fits = |dtype: DType| columns.is_multiple_of(dtype.block_len());
    if fits(dtype) {
        return dtype;
    }
    let smaller = match dtype {
        DType::Q2_K | DType::Q3_K => DType::Q4_0,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        DType::IQ4_XS => DType::IQ4_NL,
        other => other,
    };
    match fits(smaller) {
        true => smaller,
        false => DType::F16,
    }
}
