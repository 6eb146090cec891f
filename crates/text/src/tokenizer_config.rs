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
}

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
    fn wrong_types_name_the_key() {
        let error = TokenizerConfig::from_json(br#"{"eos_token": 3}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tokenizer_config.json: `eos_token` must be a string or an object with `content`, found 3"
        );
        assert!(TokenizerConfig::from_json(b"[]").is_err());
    }
}
