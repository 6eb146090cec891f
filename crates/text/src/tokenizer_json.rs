//! Owns the look at `tokenizer.json` before the library loads it: how its tokens spell bytes, what
//! its decoder takes off a text, and whether its merges fit its vocabulary.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::TextError;
use crate::vocabulary::Spelling;

#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    vocab: Vocab,
    #[serde(default)]
    merges: Vec<Merge>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Vocab {
    Ids(HashMap<String, u32>),
    /// Unigram vocabularies list scores and have no merges.
    Other(serde::de::IgnoredAny),
}

impl Default for Vocab {
    fn default() -> Self {
        Self::Ids(HashMap::new())
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

/// What decoding needs to know of the file.
pub(crate) struct Decoding {
    pub(crate) spelling: Spelling,
    /// How many spaces at the start of a whole text are not part of it.
    pub(crate) leading_spaces: usize,
}

/// How the file decodes; an error if a merge's parts or result are not in the vocabulary,
/// which the library does not survive.
pub(crate) fn check(json: &[u8]) -> Result<Decoding, TextError> {
    let file: File = serde_json::from_slice(json).map_err(|error| TextError::Json {
        file: "tokenizer.json",
        reason: error.to_string(),
    })?;
    check_merges(&file.model)?;
    Ok(Decoding {
        spelling: spelling(&file),
        leading_spaces: leading_spaces(&file.decoder),
    })
}

fn check_merges(model: &Model) -> Result<(), TextError> {
    let Vocab::Ids(vocab) = &model.vocab else {
        return Ok(());
    };
    let prefix = model.continuing_subword_prefix.as_deref().unwrap_or("");
    for merge in &model.merges {
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Text(text) if text.starts_with("#version") => continue,
            Merge::Text(text) => text.split_once(' ').unwrap_or((text, "")),
        };
        let merged = right
            .strip_prefix(prefix)
            .map(|rest| format!("{left}{rest}"));
        if merged.is_none_or(|merged| !vocab.contains_key(&merged)) {
            return Err(TextError::TokenizerJson(format!(
                "the result of the merge `{left} {right}` is not in the vocabulary"
            )));
        }
    }
    Ok(())
}

fn spelling(file: &File) -> Spelling {
    let parts = [&file.decoder, &file.pre_tokenizer, &file.normalizer];
    let uses = |name: &str| parts.iter().any(|part| mentions(part, name));
    if uses("ByteLevel") {
        Spelling::ByteLevel
    } else if uses("Metaspace") || uses("ByteFallback") {
        Spelling::Metaspace
    } else {
        Spelling::Literal
    }
}

/// SentencePiece puts a space before a text, so its decoders take one off: as the last step of a sequence that has
/// fused the tokens to one text, or as a part of `Metaspace`.
fn leading_spaces(decoder: &Value) -> usize {
    let steps = decoder["decoders"].as_array().map(Vec::as_slice);
    match steps.unwrap_or(std::slice::from_ref(decoder)) {
        [.., fuse, strip] if fuse["type"] == "Fuse" && strip["type"] == "Strip" => {
            let start = strip["start"].as_u64().filter(|_| strip["content"] == " ");
            start.and_then(|start| start.try_into().ok()).unwrap_or(0)
        }
        [.., step] if step["type"] == "Metaspace" => {
            // The older of the two keys is the one that may be missing or alone.
            let never = step["prepend_scheme"] == "never" || step["add_prefix_space"] == false;
            usize::from(!never)
        }
        _ => 0,
    }
}

/// Whether a part of the pipeline, or one in a sequence of parts, is of this type.
fn mentions(part: &Value, name: &str) -> bool {
    let nested = ["decoders", "pretokenizers", "normalizers"];
    let mut inner = nested
        .iter()
        .filter_map(|key| part[key].as_array())
        .flatten();
    part["type"] == name || inner.any(|part| mentions(part, name))
}
