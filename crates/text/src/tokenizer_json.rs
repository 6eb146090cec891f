//! Owns the look at `tokenizer.json` before the library loads it: how its tokens spell bytes, and
//! whether its merges fit its vocabulary.

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

/// How the tokens spell bytes; an error if a merge's parts or result are not in the vocabulary,
/// which the library does not survive.
pub(crate) fn check(json: &[u8]) -> Result<Spelling, TextError> {
    let file: File = serde_json::from_slice(json).map_err(|error| TextError::Json {
        file: "tokenizer.json",
        reason: error.to_string(),
    })?;
    check_merges(&file.model)?;
    Ok(spelling(&file))
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

/// Whether a part of the pipeline, or one in a sequence of parts, is of this type.
fn mentions(part: &Value, name: &str) -> bool {
    let nested = ["decoders", "pretokenizers", "normalizers"];
    let mut inner = nested
        .iter()
        .filter_map(|key| part[key].as_array())
        .flatten();
    part["type"] == name || inner.any(|part| mentions(part, name))
}
