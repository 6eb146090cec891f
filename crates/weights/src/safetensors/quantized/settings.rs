//! Owns the reading of a quantization's settings: typed values, and refusals that name the object and what is supported.

use crate::error::{Result, WeightsError};
use serde_json::{Map, Value};

const SUPPORTED: &str = "MLX affine with 4 or 8 bits in groups of 32, 64 or 128; awq (gemm) and gptq with 4 bits; fp8 (e4m3); mxfp4 experts";

/// One of the config's objects.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// What errors call it.
    pub key: &'static str,
    pub object: &'a Map<String, Value>,
}

impl<'a> Settings<'a> {
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn number(&self, key: &str) -> Result<Option<i64>> {
        self.typed(key, "an integer", Value::as_i64)
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.object.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| {
                unsupported(format!(
                    "{}: {key} should be {expected}, but it is {value}",
                    self.key
                ))
            }),
        }
    }

    pub fn refuse_method(&self, method: &str) -> WeightsError {
        let bits = ["bits", "w_bit", "weight_bits", "num_bits"]
            .into_iter()
            .find_map(|key| self.object.get(key)?.as_i64());
        match bits {
            Some(bits) => self.refuse(&format!("{method} with {bits} bits")),
            None => self.refuse(method),
        }
    }

    pub fn refuse(&self, what: &str) -> WeightsError {
        unsupported(format!(
            "{}: {what} is not supported (supported: {SUPPORTED})",
            self.key
        ))
    }
}

pub fn shown(number: Option<i64>) -> String {
    number.map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

pub fn unsupported(problem: String) -> WeightsError {
    WeightsError::Unsupported(format!("config.json: {problem}"))
}
