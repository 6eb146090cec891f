//! Owns the look into a model's files without running it: what they say, what they hold, and why they may not do.

use crate::error::Result;
use crate::model::Model;
use crate::open::{Found, OpenOptions, find, read_config};
use mettle_tensor::{TensorInfo, TensorSource};
use mettle_weights::gguf::Value as GgufValue;
use mettle_weights::{Gguf, Quantization, Safetensors};
use serde_json::Value;
use std::path::Path;

/// Characters of a value that are shown.
const LONGEST: usize = 100;

pub struct Inspection {
    /// `GGUF` or `safetensors`.
    pub format: &'static str,
    /// The GGUF file's metadata or the config's keys, each in a line's length.
    pub facts: Vec<(String, String)>,
    pub tensors: Vec<TensorInfo>,
    /// The model, or why it cannot be opened.
    pub model: Result<Model>,
}

/// An error only where there is nothing to look into: no file, or none that can be read.
pub fn inspect(path: &Path, options: OpenOptions) -> Result<Inspection> {
    let model = Model::open(path, options);
    match find(path, false)? {
        Found::Gguf(file) => {
            let gguf = Gguf::open(&file)?;
            let metadata = gguf.metadata();
            let fact = |key: &str| Some((key.to_owned(), gguf_shown(metadata.get(key)?)));
            Ok(Inspection {
                format: "GGUF",
                facts: metadata.keys().filter_map(fact).collect(),
                tensors: gguf.tensors().to_vec(),
                model,
            })
        }
        Found::Config(folder) => {
            let config = read_config(&folder.join("config.json"))?;
            let keys = config.as_object().into_iter().flatten();
            // What cannot be opened is the model's error too.
            let opened = Quantization::from_config(&config)
                .and_then(|quantization| Safetensors::open(&folder, quantization.as_ref()));
            Ok(Inspection {
                format: "safetensors",
                facts: keys.map(|(key, v)| (key.clone(), json_shown(v))).collect(),
                tensors: opened.map_or_else(|_| Vec::new(), |s| s.tensors().to_vec()),
                model,
            })
        }
    }
}

fn gguf_shown(value: &GgufValue) -> String {
    match value {
        GgufValue::U8(v) => v.to_string(),
        GgufValue::I8(v) => v.to_string(),
        GgufValue::U16(v) => v.to_string(),
        GgufValue::I16(v) => v.to_string(),
        GgufValue::U32(v) => v.to_string(),
        GgufValue::I32(v) => v.to_string(),
        GgufValue::U64(v) => v.to_string(),
        GgufValue::I64(v) => v.to_string(),
        GgufValue::F32(v) => v.to_string(),
        GgufValue::F64(v) => v.to_string(),
        GgufValue::Bool(v) => v.to_string(),
        GgufValue::Str(v) => cut(&format!("{v:?}")),
        GgufValue::Array(v) => format!("[{} elements]", v.len()),
    }
}

fn json_shown(value: &Value) -> String {
    cut(&value.to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}... ({} characters)", &text[..end], text.chars().count()),
    }
}
