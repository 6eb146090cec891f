//! Owns an open safetensors model: its tensors by the model's own names, quantized ones in our block types.

mod element;
mod header;
mod index;
mod quantized;
mod shards;
mod tensor_map;

use crate::error::{Result, WeightsError};
use element::Element;
use header::Stored;
pub(crate) use index::Index;
use mettle_tensor::{TensorInfo, TensorSource, TensorView};
use quantized::Packed;
pub use quantized::Quantization;
use shards::Shards;
use std::collections::HashMap;
use std::path::Path;

pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

pub struct Safetensors {
    shards: Shards,
    tensors: Vec<TensorInfo>,
    contents: Vec<Content>,
    by_name: HashMap<String, usize>,
}

/// 0, 1, 2 ...: no weights, but older versions of transformers wrote them into every BERT's file.
const COUNTED_POSITIONS: [&str; 2] = ["embeddings.position_ids", "bert.embeddings.position_ids"];

/// Where a tensor's bytes come from.
enum Content {
    /// A tensor of the files, as it is.
    Stored(usize),
    /// Converted from several when it is viewed.
    Packed(Packed),
}

impl Safetensors {
    /// Opens a `.safetensors` file, an index file, or a folder that holds `model.safetensors` or an index.
    pub fn open(path: &Path, quantization: Option<&Quantization>) -> Result<Safetensors> {
        Safetensors::new(Shards::open(path)?, quantization).map_err(|e| e.in_file(path))
    }

    /// Opens one file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>, quantization: Option<&Quantization>) -> Result<Safetensors> {
        Safetensors::new(Shards::from_bytes(bytes)?, quantization)
    }

    fn new(shards: Shards, quantization: Option<&Quantization>) -> Result<Safetensors> {
        let mut packed = match quantization {
            Some(quantization) => quantization.find(&shards)?,
            None => quantized::Found::default(),
        };
        let mut opened = Safetensors {
            shards,
            tensors: Vec::new(),
            contents: Vec::new(),
            by_name: HashMap::new(),
        };
        for (index, stored) in opened.shards.tensors().iter().enumerate() {
            let (info, content) = match packed.tensors.remove(&index) {
                Some((info, packed)) => (info, Content::Packed(packed)),
                None if packed.read_with_others.contains(&index) => continue,
                None if COUNTED_POSITIONS.contains(&&*stored.name) => continue,
                None => {
                    let dtype = stored.element.dense();
                    let dtype = dtype.ok_or_else(|| unexplained(stored, quantization))?;
                    let info = TensorInfo {
                        name: stored.name.clone(),
                        dtype,
                        shape: stored.shape.clone(),
                    };
                    (info, Content::Stored(index))
                }
            };
            let known = opened
                .by_name
                .insert(info.name.clone(), opened.tensors.len());
            if known.is_some() {
                let problem = format!("tensor {:?} is there quantized and plain", info.name);
                return Err(WeightsError::Malformed(problem));
            }
            opened.tensors.push(info);
            opened.contents.push(content);
        }
        Ok(opened)
    }
}

fn unexplained(stored: &Stored, quantization: Option<&Quantization>) -> WeightsError {
    // No quantization packs into these.
    if stored.element == Element::I64 {
        return header::unsupported(&stored.name, stored.element.name().to_owned());
    }
    let why = match quantization {
        Some(_) => "which the config's quantization does not explain",
        None => "but the config names no quantization",
    };
    let (name, element) = (&stored.name, stored.element.name());
    WeightsError::Malformed(format!("tensor {name:?} has type {element}, {why}"))
}

impl TensorSource for Safetensors {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        let info = &self.tensors[index];
        let (bytes, order) = match &self.contents[index] {
            Content::Stored(stored) => (self.shards.bytes(*stored).into(), None),
            Content::Packed(packed) => {
                let bytes = packed.convert(&self.shards, info);
                (bytes.into(), packed.order())
            }
        };
        TensorView {
            dtype: info.dtype,
            shape: &info.shape,
            bytes,
            order,
        }
    }

    fn release(&self, index: usize) {
        match &self.contents[index] {
            Content::Stored(stored) => self.shards.release(*stored),
            Content::Packed(packed) => packed.release(&self.shards),
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}
