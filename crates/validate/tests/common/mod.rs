//! Fixtures and models for the tests of this folder.
#![allow(dead_code, reason = "each test file uses its part")]

use mettle_models::{Model, OpenOptions};
use mettle_plan::KvElement;
use mettle_weights::download::{DEFAULT_MODEL, Home, Located, locate};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

pub fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Token ids and the reference's log-probabilities `[tokens][vocabulary]` of a tiny model.
pub struct Reference {
    pub tokens: Vec<u32>,
    pub vocabulary: usize,
    pub log_probabilities: Vec<f32>,
    /// What running the reference itself in f16 costs, on average.
    pub f16_mean_difference: Option<f64>,
}

pub fn reference(name: &str) -> Reference {
    let folder = fixtures().join("models").join(name);
    let json = json(&folder.join("reference.json"));
    let bytes = std::fs::read(folder.join("reference.f32")).unwrap();
    let log_probabilities = bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    Reference {
        tokens: ids(&json["tokens"]),
        vocabulary: json["vocab_size"].as_u64().unwrap() as usize,
        log_probabilities,
        f16_mean_difference: json["f16_mean_difference"].as_f64(),
    }
}

pub fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().expect("a list of token ids");
    ids.iter().map(|t| t.as_u64().unwrap() as u32).collect()
}

pub fn open(path: &Path, kv_element: KvElement) -> Model {
    let options = OpenOptions {
        kv_element,
        ..OpenOptions::default()
    };
    Model::open(path, options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn tiny(name: &str, file: &str) -> Model {
    let folder = fixtures().join("models").join(name);
    open(&folder.join(file), KvElement::F32)
}

/// The default model's file. `cargo xtask test` fetches it.
pub fn default_model() -> PathBuf {
    let home = Home::discover(std::env::var_os("METTLE_HOME").map(PathBuf::from)).unwrap();
    match locate(DEFAULT_MODEL, &home).unwrap() {
        Located::Path(path) => path,
        _ => panic!(
            "{DEFAULT_MODEL} is not here yet: run `cargo xtask test`, or `mettle pull {DEFAULT_MODEL}`"
        ),
    }
}
