//! Owns the look at `tokenizer.json` before the library loads it: how its tokens spell bytes, what
//! its decoder takes off a text, and whether the library would survive its merges and character maps.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use crate::vocabulary::{Opening, Spelling};
use crate::{TextError, charsmap};

#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
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
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    unk_id: Option<usize>,
}

#[derive(Deserialize)]
struct Added {
    content: String,
    #[serde(default)]
    special: bool,
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

/// What the file says that the library does not tell.
pub(crate) struct Checked<'j> {
    /// The file for the library to load.
    pub(crate) json: Cow<'j, [u8]>,
    pub(crate) spelling: Spelling,
    pub(crate) opening: Opening,
    /// The token for what is in no vocabulary: by text, or by id in a Unigram model.
    pub(crate) unknown: Option<String>,
    pub(crate) unknown_id: Option<usize>,
}

/// An error if a merge's parts or result are not in the vocabulary, or a character map leads outside itself, which the
/// library does not survive.
pub(crate) fn check(json: &[u8]) -> Result<Checked<'_>, TextError> {
    let file: File = serde_json::from_slice(json).map_err(invalid)?;
    let to_specials = check_merges(&file)?;
    check_charsmaps(&file.normalizer)?;
    let json = match to_specials.is_empty() {
        true => Cow::Borrowed(json),
        false => Cow::Owned(without_merges(json, &to_specials)?),
    };
    Ok(Checked {
        json,
        spelling: spelling(&file),
        opening: opening(&file.decoder),
        unknown: file.model.unk_token,
        unknown_id: file.model.unk_id,
    })
}

fn invalid(error: serde_json::Error) -> TextError {
    TextError::Json {
        file: "tokenizer.json",
        reason: error.to_string(),
    }
}

/// The places of merges that make a special token, which plain text must not reach.
fn check_merges(file: &File) -> Result<HashSet<usize>, TextError> {
    let model = &file.model;
    let mut to_specials = HashSet::new();
    let Vocab::Ids(vocab) = &model.vocab else {
        return Ok(to_specials);
    };
    let specials = file.added_tokens.iter().filter(|added| added.special);
    let specials: HashSet<&str> = specials.map(|added| added.content.as_str()).collect();
    let prefix = model.continuing_subword_prefix.as_deref().unwrap_or("");
    for (index, merge) in model.merges.iter().enumerate() {
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Text(text) if text.starts_with("#version") => continue,
            Merge::Text(text) => text.split_once(' ').unwrap_or((text, "")),
        };
        let merged = right
            .strip_prefix(prefix)
            .map(|rest| format!("{left}{rest}"));
        match merged.filter(|merged| vocab.contains_key(merged)) {
            None => {
                return Err(TextError::TokenizerJson(format!(
                    "the result of the merge `{left} {right}` is not in the vocabulary"
                )));
            }
            Some(merged) if specials.contains(merged.as_str()) => {
                to_specials.insert(index);
            }
            Some(_) => {}
        }
    }
    Ok(to_specials)
}

/// Files derived from a SentencePiece vocabulary may list merges to its control tokens, first of all.
fn without_merges(json: &[u8], dropped: &HashSet<usize>) -> Result<Vec<u8>, TextError> {
    let mut file: Value = serde_json::from_slice(json).map_err(invalid)?;
    if let Some(merges) = file["model"]["merges"].as_array_mut() {
        let mut index = 0;
        merges.retain(|_| {
            index += 1;
            !dropped.contains(&(index - 1))
        });
    }
    serde_json::to_vec(&file).map_err(invalid)
}

fn check_charsmaps(normalizer: &Value) -> Result<(), TextError> {
    for step in normalizer["normalizers"].as_array().into_iter().flatten() {
        check_charsmaps(step)?;
    }
    match normalizer["precompiled_charsmap"].as_str() {
        None => Ok(()),
        Some(base64) => match charsmap::from_base64(base64) {
            Some(map) => charsmap::check(&map),
            None => Err(TextError::TokenizerJson(
                "precompiled_charsmap is not base64".to_owned(),
            )),
        },
    }
}

fn spelling(file: &File) -> Spelling {
    let parts = [&file.decoder, &file.pre_tokenizer, &file.normalizer];
    let uses = |name: &str| parts.iter().any(|part| mentions(part, name));
    if uses("ByteLevel") {
        Spelling::ByteLevel
    } else if uses("Metaspace") || uses("ByteFallback") || replaces_spaces(&file.decoder) {
        Spelling::Metaspace
    } else if file.decoder["type"] == "WordPiece" {
        let prefix = file.decoder["prefix"].as_str().unwrap_or("##");
        Spelling::WordPiece {
            prefix: prefix.to_owned(),
            cleanup: file.decoder["cleanup"] != false,
        }
    } else {
        Spelling::Literal
    }
}

fn replaces_spaces(decoder: &Value) -> bool {
    let is_it = |step: &Value| step["type"] == "Replace" && step["pattern"]["String"] == "▁";
    let mut steps = decoder["decoders"].as_array().into_iter().flatten();
    is_it(decoder) || steps.any(is_it)
}

/// SentencePiece puts a space before a text, so its decoders take one off: as the last step of a sequence that has
/// fused the tokens to one text, or as a part of `Metaspace`.
fn opening(decoder: &Value) -> Opening {
    let steps = decoder["decoders"].as_array().map(Vec::as_slice);
    match steps.unwrap_or(std::slice::from_ref(decoder)) {
        [.., fuse, strip] if fuse["type"] == "Fuse" && strip["type"] == "Strip" => {
            let start = strip["start"].as_u64().filter(|_| strip["content"] == " ");
            let start = start.and_then(|start| start.try_into().ok());
            Opening::Spaces(start.unwrap_or(0))
        }
        [.., step] if step["type"] == "Metaspace" => {
            // The older of the two keys is the one that may be missing or alone.
            match step["prepend_scheme"] == "never" || step["add_prefix_space"] == false {
                true => Opening::Spaces(0),
                false => Opening::FirstTokenWithoutSpaces,
            }
        }
        [.., step] if step["type"] == "WordPiece" => Opening::FirstTokenAsWritten,
        _ => Opening::Spaces(0),
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
