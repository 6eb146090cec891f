//! Owns the reading of `tokenizer_config.json`: which tokens play a role, and the chat template.

use serde_json::{Map, Value};

use crate::TextError;

const FILE: &str = "tokenizer_config.json";

/// The parts of `tokenizer_config.json` that matter for text; everything else is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerConfig {
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
    pub unk_token: Option<String>,
    pub pad_token: Option<String>,
    pub add_bos_token: Option<bool>,
    pub add_eos_token: Option<bool>,
    /// The template named `default` where the file holds several.
    pub chat_template: Option<String>,
    /// How many sentinels a T5 vocabulary has beyond its SentencePiece file.
    pub extra_ids: Option<usize>,
    /// `added_tokens_decoder`, for vocabularies without a `tokenizer.json`.
    pub added_tokens: Vec<AddedToken>,
}

/// A token that was added to a finished vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedToken {
    pub id: u32,
    pub text: String,
    pub special: bool,
}

/// More are damage, and would cost memory for each.
const MOST_EXTRA_IDS: u64 = 1 << 16;

impl TokenizerConfig {
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        let object: Map<String, Value> =
            serde_json::from_slice(json).map_err(|error| TextError::Json {
                file: FILE,
                reason: error.to_string(),
            })?;
        Ok(Self {
            bos_token: token(&object, "bos_token")?,
            eos_token: token(&object, "eos_token")?,
            unk_token: token(&object, "unk_token")?,
            pad_token: token(&object, "pad_token")?,
            add_bos_token: flag(&object, "add_bos_token")?,
            add_eos_token: flag(&object, "add_eos_token")?,
            chat_template: template(&object)?,
            extra_ids: extra_ids(&object)?,
            added_tokens: added_tokens(&object)?,
        })
    }
}

/// A token is written as its text, or as an object with the text under `content`.
fn token(object: &Map<String, Value>, key: &str) -> Result<Option<String>, TextError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => match value.get("content").and_then(Value::as_str) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(wrong(key, "a string or an object with `content`", value)),
        },
    }
}

fn flag(object: &Map<String, Value>, key: &str) -> Result<Option<bool>, TextError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(value) => Err(wrong(key, "true or false", value)),
    }
}

fn extra_ids(object: &Map<String, Value>) -> Result<Option<usize>, TextError> {
    let value = match object.get("extra_ids") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let count = value.as_u64().filter(|count| *count <= MOST_EXTRA_IDS);
    match count {
        Some(count) => Ok(Some(count as usize)),
        None => Err(wrong("extra_ids", "a number up to 65536", value)),
    }
}

fn added_tokens(object: &Map<String, Value>) -> Result<Vec<AddedToken>, TextError> {
    const KEY: &str = "added_tokens_decoder";
    let tokens = match object.get(KEY) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(tokens)) => tokens,
        Some(value) => return Err(wrong(KEY, "an object", value)),
    };
    let tokens = tokens.iter().map(|(id, token)| {
        let parts = id.parse().ok().zip(token["content"].as_str());
        let (id, text) =
            parts.ok_or_else(|| wrong(&format!("{KEY}.{id}"), "a token with `content`", token))?;
        Ok(AddedToken {
            id,
            text: text.to_owned(),
            special: token["special"] == true,
        })
    });
    tokens.collect()
}

fn template(object: &Map<String, Value>) -> Result<Option<String>, TextError> {
    let named = match object.get("chat_template") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(source)) => return Ok(Some(source.clone())),
        Some(Value::Array(named)) => named,
        Some(value) => {
            return Err(wrong(
                "chat_template",
                "a string or a list of named templates",
                value,
            ));
        }
    };
    let default = named.iter().find(|entry| entry["name"] == "default");
    Ok(default
        .and_then(|entry| entry["template"].as_str())
        .map(str::to_owned))
}

fn wrong(key: &str, expected: &'static str, found: &Value) -> TextError {
    TextError::JsonType {
        file: FILE,
        key: key.to_owned(),
        expected,
        found: found.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_as_text_or_object() {
        let config = TokenizerConfig::from_json(
            br#"{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                 "pad_token": null, "add_bos_token": true, "model_max_length": 1e30}"#,
        )
        .unwrap();
        assert_eq!(config.bos_token.as_deref(), Some("<s>"));
        assert_eq!(config.eos_token.as_deref(), Some("</s>"));
        assert_eq!((config.pad_token, config.unk_token), (None, None));
        assert_eq!(
            (config.add_bos_token, config.add_eos_token),
            (Some(true), None)
        );
    }

    #[test]
    fn one_template_or_several() {
        let one = TokenizerConfig::from_json(br#"{"chat_template": "a"}"#).unwrap();
        assert_eq!(one.chat_template.as_deref(), Some("a"));
        let several = br#"{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}"#;
        let several = TokenizerConfig::from_json(several).unwrap();
        assert_eq!(several.chat_template.as_deref(), Some("d"));
    }

    #[test]
    fn added_tokens() {
        let config = TokenizerConfig::from_json(
            br#"{"extra_ids": 2, "added_tokens_decoder": {"7": {"content": "<a>", "special": true}}}"#,
        )
        .unwrap();
        let added = AddedToken {
            id: 7,
            text: "<a>".to_owned(),
            special: true,
        };
        assert_eq!(
            (config.extra_ids, config.added_tokens),
            (Some(2), vec![added])
        );
        let error = |json: &str| {
            let read = TokenizerConfig::from_json(json.as_bytes());
            read.unwrap_err().to_string()
        };
        assert!(error(r#"{"extra_ids": 70000}"#).contains("up to 65536, found 70000"));
        let nameless = error(r#"{"added_tokens_decoder": {"7": {}}}"#);
        assert!(nameless.contains("`added_tokens_decoder.7`"), "{nameless}");
        assert!(error(r#"{"added_tokens_decoder": {"x": {"content": ""}}}"#).contains("decoder.x"));
    }

    #[test]
    fn wrong_types_name_the_key() {
        let error = TokenizerConfig::from_json(br#"{"eos_token": 3}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tokenizer_config.json: `eos_token` must be a string or an object with `content`, found 3"
        );
        assert!(TokenizerConfig::from_json(b"[]").is_err());
    }
}
