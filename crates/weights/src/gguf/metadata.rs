//! Owns the metadata of a GGUF file: named values in file order, and getters that name what is wrong.

use super::cursor::Cursor;
use super::value::{Array, Value};
use crate::error::{Result, WeightsError};
use std::collections::HashMap;

/// The smallest entry: an empty key (8 bytes of length), a type (4) and one byte.
const SMALLEST_ENTRY: usize = 13;

#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    by_key: HashMap<String, usize>,
}

impl Metadata {
    pub(super) fn read(cursor: &mut Cursor, count: u64) -> Result<Metadata> {
        let count = cursor.count(count, SMALLEST_ENTRY, "the metadata")?;
        let mut metadata = Metadata::default();
        for _ in 0..count {
            let key = cursor.string("a metadata key")?;
            let value = Value::read(cursor)
                .map_err(|e| WeightsError::Malformed(format!("metadata key {key:?}: {e}")))?;
            let index = metadata.entries.len();
            if metadata.by_key.insert(key.to_owned(), index).is_some() {
                return Err(WeightsError::Malformed(format!(
                    "metadata key {key:?} occurs twice"
                )));
            }
            metadata.entries.push((key.to_owned(), value));
        }
        Ok(metadata)
    }

    /// The keys in file order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(key, _)| key.as_str())
    }

    /// Keys and values in file order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// Changes a value where it is, or adds it at the end.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.by_key.get(key) {
            Some(index) => self.entries[*index].1 = value,
            None => {
                self.by_key.insert(key.to_owned(), self.entries.len());
                self.entries.push((key.to_owned(), value));
            }
        }
    }

    /// Drops every key for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|(key, _)| keep(key));
        let keys = self.entries.iter().map(|(key, _)| key.clone());
        self.by_key = keys.enumerate().map(|(index, key)| (key, index)).collect();
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.by_key.get(key).map(|i| &self.entries[*i].1)
    }

    /// An integer of any width that is not negative.
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "an integer that is not negative", |v| match *v {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        })
    }

    /// A float of either width.
    pub fn get_f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a float", |v| match *v {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    pub fn get_bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", |v| match *v {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    pub fn get_str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |v| match v {
            Value::Str(v) => Some(v.as_str()),
            _ => None,
        })
    }

    pub fn get_strs(&self, key: &str) -> Result<Option<&[String]>> {
        self.typed(key, "an array of strings", |v| match v {
            Value::Array(Array::Str(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of integers of any width whose values fit.
    pub fn get_i64s(&self, key: &str) -> Result<Option<Vec<i64>>> {
        fn widen<T: Copy + Into<i64>>(values: &[T]) -> Option<Vec<i64>> {
            Some(values.iter().map(|v| (*v).into()).collect())
        }
        self.typed(key, "an array of integers", |v| match v {
            Value::Array(Array::U8(v)) => widen(v),
            Value::Array(Array::I8(v)) => widen(v),
            Value::Array(Array::U16(v)) => widen(v),
            Value::Array(Array::I16(v)) => widen(v),
            Value::Array(Array::U32(v)) => widen(v),
            Value::Array(Array::I32(v)) => widen(v),
            Value::Array(Array::I64(v)) => widen(v),
            Value::Array(Array::U64(v)) => v.iter().map(|v| i64::try_from(*v).ok()).collect(),
            _ => None,
        })
    }

    pub fn get_bools(&self, key: &str) -> Result<Option<&[bool]>> {
        self.typed(key, "an array of true and false", |v| match v {
            Value::Array(Array::Bool(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    pub fn get_f32s(&self, key: &str) -> Result<Option<&[f32]>> {
        self.typed(key, "an array of 32-bit floats", |v| match v {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    pub fn require_str(&self, key: &str) -> Result<&str> {
        required(key, self.get_str(key)?)
    }

    pub fn require_strs(&self, key: &str) -> Result<&[String]> {
        required(key, self.get_strs(key)?)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(WeightsError::WrongType {
                key: key.to_owned(),
                expected,
                found: value.describe(),
            }),
        }
    }
}

fn required<T>(key: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| WeightsError::MissingKey {
        key: key.to_owned(),
    })
}
