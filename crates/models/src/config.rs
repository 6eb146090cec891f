//! Owns the reading of a `config.json`: every key must be read by the architecture or be known to change no maths.

use crate::error::{ModelError, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Keys that no forward pass depends on, whatever they say.
const WITHOUT_MATHS: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_from_model_config",
    "_model_name_or_path",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "classifier_dropout",
    "decoder_start_token_id",
    "dropout_rate",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "finetuning_task",
    "hidden_dropout",
    "id2label",
    "initializer_factor",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "problem_type",
    "resid_pdrop",
    "return_dict",
    "router_aux_loss_coef",
    "task_specific_params",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// A JSON object whose keys are ticked off as they are read; [`Config::finish`] refuses the ones nobody knew.
pub struct Config<'a> {
    /// What errors call it: `config.json`, or `config.json: rope_parameters`.
    name: String,
    object: &'a Map<String, Value>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Config<'a> {
    pub fn new(name: &str, json: &'a Value) -> Result<Config<'a>> {
        let object = json.as_object().ok_or_else(|| ModelError::Json {
            file: name.to_owned(),
            reason: "it is not an object".into(),
        })?;
        Ok(Config {
            name: name.to_owned(),
            object,
            read: RefCell::default(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of a key; `null` counts as absent, as it does in transformers.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(key.to_owned());
        self.object.get(key).filter(|v| !v.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(ModelError::WrongType {
                source_name: self.name.clone(),
                key: key.to_owned(),
                expected,
                found: shown(value),
            }),
        }
    }

    pub fn size_or_none(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "an integer that is not negative", |v| {
            v.as_u64().and_then(|n| usize::try_from(n).ok())
        })
    }

    pub fn size(&self, key: &str) -> Result<usize> {
        self.size_or_none(key)?.ok_or_else(|| self.missing(key))
    }

    /// A size that must be 1 to `most`.
    pub fn size_up_to(&self, key: &str, most: usize) -> Result<usize> {
        let size = self.size(key)?;
        match size >= 1 && size <= most {
            true => Ok(size),
            false => Err(ModelError::Dimensions {
                source_name: self.name.clone(),
                problem: format!("{key} is {size}; it must be 1 to {most}"),
            }),
        }
    }

    /// A hidden, feed-forward or vocabulary size.
    pub fn width(&self, key: &str) -> Result<usize> {
        self.size_up_to(key, 1 << 20)
    }

    /// A number of heads or experts, or the size of a head.
    pub fn count(&self, key: &str) -> Result<usize> {
        self.size_up_to(key, 1 << 12)
    }

    /// A number of elements that rotate in pairs.
    pub fn even_count(&self, key: &str) -> Result<usize> {
        match self.count(key)? {
            even if even.is_multiple_of(2) => Ok(even),
            odd => Err(self.mismatch(format!("{key} is {odd}; rotary embedding turns pairs"))),
        }
    }

    pub fn layers(&self, key: &str) -> Result<usize> {
        self.size_up_to(key, 2000)
    }

    pub fn float_or_none(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite number", |v| {
            v.as_f64().map(|n| n as f32).filter(|n| n.is_finite())
        })
    }

    pub fn float(&self, key: &str) -> Result<f32> {
        self.float_or_none(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number above 0: a rotary base, a divisor.
    pub fn positive(&self, key: &str) -> Result<f32> {
        match self.float(key)? {
            positive if positive > 0.0 => Ok(positive),
            other => Err(self.mismatch(format!("{key} is {other}; it must be above 0"))),
        }
    }

    pub fn flag_or_none(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn text_or_none(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn text(&self, key: &str) -> Result<&'a str> {
        self.text_or_none(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn texts_or_none(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.typed(key, "a list of strings", |v| {
            v.as_array()?.iter().map(Value::as_str).collect()
        })
    }

    pub fn sizes_or_none(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.typed(key, "a list of integers that are not negative", |v| {
            let size = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
            v.as_array()?.iter().map(size).collect()
        })
    }

    pub fn floats(&self, key: &str) -> Result<Vec<f32>> {
        let read = |v: &Value| {
            let number = |v: &Value| v.as_f64().map(|n| n as f32).filter(|n| n.is_finite());
            v.as_array()?.iter().map(number).collect()
        };
        let found = self.typed(key, "a list of finite numbers", read)?;
        found.ok_or_else(|| self.missing(key))
    }

    /// The object under `key`, to be read and finished like this one.
    pub fn object_or_none(&self, key: &str) -> Result<Option<Config<'a>>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|object| Config {
            name: format!("{}: {key}", self.name),
            object,
            read: RefCell::default(),
        }))
    }

    pub fn object(&self, key: &str) -> Result<Config<'a>> {
        self.object_or_none(key)?.ok_or_else(|| self.missing(key))
    }

    /// Reads a key whose value must be `expected`, or absent where transformers' default is the same.
    pub fn must_be(&self, key: &str, expected: impl Into<Value>) -> Result<()> {
        let expected = expected.into();
        match self.get(key) {
            None => Ok(()),
            Some(found) if same(found, &expected) => Ok(()),
            Some(_) => Err(self.unsupported(key, format!("only {expected} is"))),
        }
    }

    /// An error about how several keys fit together.
    pub fn mismatch(&self, problem: String) -> ModelError {
        ModelError::Dimensions {
            source_name: self.name.clone(),
            problem,
        }
    }

    /// Keys that are read elsewhere or are known not to matter for this architecture.
    pub fn ignore(&self, keys: &[&str]) {
        let mut read = self.read.borrow_mut();
        read.extend(keys.iter().map(|k| (*k).to_owned()));
    }

    /// An error for a key whose value is understood but not supported.
    pub fn unsupported(&self, key: &str, supported: impl Into<String>) -> ModelError {
        ModelError::Unsupported {
            source_name: self.name.clone(),
            key: key.to_owned(),
            value: self.object.get(key).map_or_else(|| "absent".into(), shown),
            supported: supported.into(),
        }
    }

    pub fn missing(&self, key: &str) -> ModelError {
        ModelError::MissingKey {
            source_name: self.name.clone(),
            key: key.to_owned(),
        }
    }

    /// Refuses keys that were not read and are not known to be harmless.
    pub fn finish(&self) -> Result<()> {
        let read = self.read.borrow();
        for (key, value) in self.object {
            let key = key.as_str();
            if read.contains(key) || WITHOUT_MATHS.contains(&key) {
                continue;
            }
            return Err(ModelError::UnknownKey {
                source_name: self.name.clone(),
                key: key.to_owned(),
                value: shown(value),
            });
        }
        Ok(())
    }
}

/// `1` and `1.0` are the same setting.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a == b)
}

/// The value as JSON, cut where a message would become a page.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
