//! Fixtures and models for the tests of this folder.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod answers;
pub mod widened;

use mettle_models::{Model, OpenOptions};
use mettle_plan::KvElement;
use mettle_validate::Reference;
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

pub fn reference(name: &str) -> Reference {
    Reference::read(&fixtures().join("models").join(name)).unwrap()
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
