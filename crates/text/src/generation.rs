//! Owns the reading of `generation_config.json`: how a model's makers want it sampled.

use serde_json::{Map, Value};

use crate::TextError;

const FILE: &str = "generation_config.json";

/// The sampling a model asks for. What is `None` the file does not mention; unknown keys are
/// ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// 0 where the file turns sampling off (`do_sample: false`).
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub max_new_tokens: Option<u32>,
    /// Every id that ends a generation.
    pub eos_token_ids: Vec<u32>,
}

impl GenerationDefaults {
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        let object: Map<String, Value> =
            serde_json::from_slice(json).map_err(|error| TextError::Json {
                file: FILE,
                reason: error.to_string(),
            })?;
        let file = File(object);
        let greedy = file.read("do_sample", "true or false", Value::as_bool)? == Some(false);
        let temperature = file.float("temperature")?;
        Ok(Self {
            temperature: if greedy { Some(0.0) } else { temperature },
            top_p: file.float("top_p")?,
            top_k: file.integer("top_k")?,
            min_p: file.float("min_p")?,
            repetition_penalty: file.float("repetition_penalty")?,
            max_new_tokens: file.integer("max_new_tokens")?,
            eos_token_ids: file
                .read("eos_token_id", "a token id or a list of them", ids)?
                .unwrap_or_default(),
        })
    }
}

struct File(Map<String, Value>);

impl File {
    fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, TextError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match convert(value) {
                Some(converted) => Ok(Some(converted)),
                None => Err(TextError::JsonType {
                    file: FILE,
                    key: key.to_owned(),
                    expected,
                    found: value.to_string(),
                }),
            },
        }
    }

    fn float(&self, key: &str) -> Result<Option<f32>, TextError> {
        self.read(key, "a number", |value| {
            value.as_f64().map(|number| number as f32)
        })
    }

    fn integer(&self, key: &str) -> Result<Option<u32>, TextError> {
        self.read(key, "a whole number", id)
    }
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    match value {
        Value::Array(list) => list.iter().map(id).collect(),
        single => id(single).map(|id| vec![id]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<GenerationDefaults, String> {
        GenerationDefaults::from_json(json.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_usual_file() {
        let defaults = read(
            r#"{"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
                "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05,
                "max_new_tokens": 2048, "transformers_version": "4.37.0"}"#,
        );
        let expected = GenerationDefaults {
            temperature: Some(0.7),
            top_p: Some(0.8),
            top_k: Some(20),
            min_p: Some(0.05),
            repetition_penalty: Some(1.1),
            max_new_tokens: Some(2048),
            eos_token_ids: vec![151645, 151643],
        };
        assert_eq!(defaults, Ok(expected));
    }

    #[test]
    fn without_sampling_the_temperature_is_zero() {
        let defaults =
            read(r#"{"do_sample": false, "temperature": 0.7, "eos_token_id": 2}"#).unwrap();
        assert_eq!(
            (defaults.temperature, defaults.eos_token_ids),
            (Some(0.0), vec![2])
        );
    }

    #[test]
    fn silence_is_not_an_opinion() {
        assert_eq!(
            read(r#"{"temperature": null, "new_key": {}}"#),
            Ok(GenerationDefaults::default())
        );
    }

    #[test]
    fn wrong_types_name_the_key() {
        for (json, key) in [
            (r#"{"temperature": "hot"}"#, "`temperature`"),
            (r#"{"top_k": 2.5}"#, "`top_k`"),
            (r#"{"top_k": -1}"#, "`top_k`"),
            (r#"{"eos_token_id": [1, "x"]}"#, "`eos_token_id`"),
            (r#"{"eos_token_id": 4294967296}"#, "`eos_token_id`"),
            (r#"{"do_sample": 1}"#, "`do_sample`"),
        ] {
            let message = read(json).unwrap_err();
            assert!(message.contains(key), "{message}");
        }
        assert!(read("[1]").unwrap_err().contains("generation_config.json"));
    }
}
