//! Owns the one error type of this crate. Messages carry the key, the value and what would be accepted.

use mettle_text::TextError;
use mettle_weights::WeightsError;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, ModelError>;

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("cannot read {path}: {reason}")]
    Io {
        path: PathBuf,
        reason: std::io::Error,
    },
    #[error("{file} is not valid JSON: {reason}")]
    Json { file: String, reason: String },
    #[error("{path} is not a model: {reason}")]
    NotAModel { path: PathBuf, reason: String },
    #[error("architecture {found} is not supported (supported: {supported})")]
    Architecture { found: String, supported: String },
    #[error("{model}: there is a plan for {architecture}, but no backend runs it yet")]
    PlanOnly { model: String, architecture: String },
    #[error("{source_name}: {key} is missing")]
    MissingKey { source_name: String, key: String },
    #[error("{source_name}: {key} must be {expected}, found {found}")]
    WrongType {
        source_name: String,
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error(
        "{source_name}: {key} = {value} is not known to this architecture and could change its maths"
    )]
    UnknownKey {
        source_name: String,
        key: String,
        value: String,
    },
    #[error("{source_name}: {key} = {value} is not supported ({supported})")]
    Unsupported {
        source_name: String,
        key: String,
        value: String,
        supported: String,
    },
    #[error("{source_name}: {problem}")]
    Dimensions {
        source_name: String,
        problem: String,
    },
    #[error(
        "random weights of type {dtype} for {tensor}: rows of {columns} are not whole blocks of {block}"
    )]
    DummyType {
        tensor: String,
        dtype: &'static str,
        columns: usize,
        block: usize,
    },
    #[error("{what} has no tokenizer, so it takes token ids only: {looked_for}")]
    NoTokenizer { what: String, looked_for: String },
    #[error("there is no model or config called {name}; built in are: {known}")]
    UnknownName { name: String, known: String },
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Text(#[from] TextError),
}
