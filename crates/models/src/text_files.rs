//! Owns where a model's text lives: the tokenizer's and template's files of a folder, or the keys of a GGUF file.

use crate::error::{ModelError, Result};
use mettle_text::{GenerationDefaults, GgufPieces, GgufVocab, Tokenizer, TokenizerConfig};
use mettle_weights::{Gguf, Metadata};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub enum TextFiles {
    Folder(PathBuf),
    Gguf(Arc<Gguf>),
}

impl TextFiles {
    pub fn tokenizer(&self, model: &str) -> Result<Tokenizer> {
        match self {
            TextFiles::Folder(folder) => {
                let config = read(folder, "tokenizer_config.json")?;
                if let Some(json) = read(folder, "tokenizer.json")? {
                    return Ok(Tokenizer::from_json(&json, config.as_deref())?);
                }
                // SentencePiece's own file, under the name that T5 gives it last.
                for name in ["tokenizer.model", "spiece.model"] {
                    if let Some(file) = read(folder, name)? {
                        return Ok(Tokenizer::from_sentencepiece(&file, config.as_deref())?);
                    }
                }
                Err(ModelError::NoTokenizer {
                    what: model.to_owned(),
                    looked_for: format!(
                        "{} is missing, and so is tokenizer.model",
                        folder.join("tokenizer.json").display()
                    ),
                })
            }
            TextFiles::Gguf(gguf) => match gguf.metadata().get("tokenizer.ggml.model") {
                Some(_) => {
                    let (vocabulary, pieces) =
                        (vocabulary(gguf.metadata())?, pieces(gguf.metadata())?);
                    Ok(Tokenizer::from_gguf_pieces(vocabulary, pieces)?)
                }
                None => Err(ModelError::NoTokenizer {
                    what: model.to_owned(),
                    looked_for: "the GGUF file has no tokenizer.ggml.model".into(),
                }),
            },
        }
    }

    /// The template's source. `chat_template.jinja` is newer than the key of `tokenizer_config.json` and wins.
    pub fn chat_template(&self) -> Result<Option<String>> {
        match self {
            TextFiles::Folder(folder) => {
                if let Some(source) = read(folder, "chat_template.jinja")? {
                    let source = String::from_utf8(source).map_err(|e| ModelError::NotAModel {
                        path: folder.join("chat_template.jinja"),
                        reason: e.to_string(),
                    })?;
                    return Ok(Some(source));
                }
                match read(folder, "tokenizer_config.json")? {
                    Some(json) => Ok(TokenizerConfig::from_json(&json)?.chat_template),
                    None => Ok(None),
                }
            }
            TextFiles::Gguf(gguf) => {
                let template = gguf.metadata().get_str("tokenizer.chat_template")?;
                Ok(template.map(str::to_owned))
            }
        }
    }

    pub fn generation(&self) -> Result<GenerationDefaults> {
        match self {
            TextFiles::Folder(folder) => match read(folder, "generation_config.json")? {
                Some(json) => Ok(GenerationDefaults::from_json(&json)?),
                None => Ok(GenerationDefaults::default()),
            },
            TextFiles::Gguf(_) => Ok(GenerationDefaults::default()),
        }
    }

    /// The ids that end an answer, beyond those of `generation_config.json`.
    pub fn eos_ids(&self, config: Option<&Value>) -> Result<Vec<u32>> {
        match self {
            TextFiles::Folder(_) => config_eos_ids(config),
            TextFiles::Gguf(gguf) => {
                let keys = ["eos_token_id", "eot_token_id", "eom_token_id"];
                let ids = keys.map(|key| token_id(gguf.metadata(), key));
                ids.into_iter().filter_map(Result::transpose).collect()
            }
        }
    }
}

fn config_eos_ids(config: Option<&Value>) -> Result<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let value = config.and_then(|c| c.get("eos_token_id"));
    let ids = match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(id).collect(),
        Some(single) => id(single).map(|id| vec![id]),
    };
    ids.ok_or_else(|| ModelError::WrongType {
        source_name: "config.json".into(),
        key: "eos_token_id".into(),
        expected: "a token id or a list of them",
        found: value.map_or_else(String::new, Value::to_string),
    })
}

/// The contents of a file that may be absent.
pub(crate) fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(ModelError::Io { path, reason }),
    }
}

fn token_id(metadata: &Metadata, key: &str) -> Result<Option<u32>> {
    let key = format!("tokenizer.ggml.{key}");
    match metadata.get_u64(&key)? {
        None => Ok(None),
        Some(id) => match u32::try_from(id) {
            Ok(id) => Ok(Some(id)),
            Err(_) => Err(ModelError::WrongType {
                source_name: "GGUF metadata".into(),
                key,
                expected: "a token id",
                found: id.to_string(),
            }),
        },
    }
}

fn vocabulary(metadata: &Metadata) -> Result<GgufVocab> {
    let flag = |key: &str| metadata.get_bool(&format!("tokenizer.ggml.{key}"));
    let types = metadata.get_i64s("tokenizer.ggml.token_type")?;
    let merges = metadata.get_strs("tokenizer.ggml.merges")?;
    Ok(GgufVocab {
        model: metadata.require_str("tokenizer.ggml.model")?.to_owned(),
        pre: metadata.get_str("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: metadata.require_strs("tokenizer.ggml.tokens")?.to_vec(),
        token_types: types
            .unwrap_or_default()
            .into_iter()
            .map(|t| i32::try_from(t).unwrap_or(i32::MAX))
            .collect(),
        merges: merges.unwrap_or_default().to_vec(),
        bos: token_id(metadata, "bos_token_id")?,
        eos: token_id(metadata, "eos_token_id")?,
        unknown: token_id(metadata, "unknown_token_id")?,
        padding: token_id(metadata, "padding_token_id")?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
    })
}

/// The keys of SentencePiece and WordPiece vocabularies.
fn pieces(metadata: &Metadata) -> Result<GgufPieces> {
    const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
    let scores = metadata.get_f32s("tokenizer.ggml.scores")?;
    // Bytes, which some writers call signed.
    let charsmap = metadata.get_i64s(CHARSMAP)?.unwrap_or_default();
    let charsmap = charsmap.into_iter().map(|byte| match byte {
        -128..=255 => Ok(byte as u8),
        _ => Err(ModelError::WrongType {
            source_name: "GGUF metadata".into(),
            key: CHARSMAP.into(),
            expected: "bytes",
            found: byte.to_string(),
        }),
    });
    Ok(GgufPieces {
        scores: scores.unwrap_or_default().to_vec(),
        precompiled_charsmap: charsmap.collect::<Result<_>>()?,
        remove_extra_whitespaces: metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces")?,
        cls: token_id(metadata, "cls_token_id")?,
        separator: token_id(metadata, "seperator_token_id")?,
        add_separator: metadata.get_bool("tokenizer.ggml.add_sep_token")?,
        lowercase: metadata.get_bool("tokenizer.ggml.normalizer.lowercase")?,
    })
}
