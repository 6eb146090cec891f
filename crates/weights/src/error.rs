//! Owns the one error type of this crate. Messages carry the names and the numbers.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, WeightsError>;

// Causes are fields called `reason`, not `source`: their text is part of the message already, and a reporter that
// walks the chain would print it twice.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("cannot {doing} {path}: {reason}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        reason: io::Error,
    },
    #[error("{path}: {reason}")]
    InFile {
        path: PathBuf,
        reason: Box<WeightsError>,
    },
    #[error("part {part} of {count} of the model is missing: {path}")]
    MissingPart {
        part: usize,
        count: usize,
        path: PathBuf,
    },
    #[error(
        "the file ends too early: {what} at byte {at} needs {needed} bytes, {left} are left in the file"
    )]
    Truncated {
        what: &'static str,
        at: usize,
        needed: u64,
        left: usize,
    },
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Unsupported(String),
    #[error("tensor {tensor:?} has type {dtype}, which is not supported (supported: {supported})")]
    UnsupportedType {
        tensor: String,
        dtype: String,
        supported: String,
    },
    #[error("tensor {tensor:?}, row {row}, column {column}: {problem}")]
    BadWeight {
        tensor: String,
        row: usize,
        column: usize,
        problem: String,
    },
    #[error("{path} exists already")]
    Exists { path: PathBuf },
    #[error("metadata key {key:?} is missing")]
    MissingKey { key: String },
    #[error("metadata key {key:?} should be {expected}, but it is {found}")]
    WrongType {
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error("random weights need {} of memory: {reason}", gigabytes(*.needed))]
    RandomTooLarge { needed: u64, reason: String },
    #[error("cancelled")]
    Cancelled,
    #[error(
        "no cache folder is known: neither HOME nor XDG_CACHE_HOME is set to an absolute path; set METTLE_HOME"
    )]
    NoHome,
    #[error("the disk is full: {written} bytes of {file} were written")]
    DiskFull { file: PathBuf, written: u64 },
    #[error("{file} should have {expected} bytes, but {found} came; it was deleted")]
    WrongSize {
        file: PathBuf,
        expected: u64,
        found: u64,
    },
    #[error("{file} should have SHA-256 {expected}, but {found} came; it was deleted")]
    WrongChecksum {
        file: PathBuf,
        expected: String,
        found: String,
    },
    #[error("{url}: {reason}")]
    Network { url: String, reason: String },
    #[error("{url} answered {status}{hint}")]
    HttpStatus {
        url: String,
        status: u16,
        hint: &'static str,
    },
    #[error("{0}")]
    HubChoice(String),
    #[error("package {package}: {reason}")]
    Package { package: String, reason: String },
    #[error("no model {model:?}: {reason}")]
    UnknownModel { model: String, reason: String },
    #[error("{model} could not be fetched:{}\nGet a .gguf file by other means and give its path instead of the name.", bullets(.attempts))]
    PullFailed {
        model: String,
        /// Each source and why it failed.
        attempts: Vec<(String, WeightsError)>,
    },
}

pub(crate) fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

fn bullets(attempts: &[(String, WeightsError)]) -> String {
    attempts
        .iter()
        .map(|(source, reason)| format!("\n  - from {source}: {reason}"))
        .collect()
}

impl WeightsError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WeightsError {
        let path = path.to_owned();
        move |reason| WeightsError::Io {
            doing,
            path,
            reason,
        }
    }

    pub(crate) fn in_file(self, path: &Path) -> WeightsError {
        WeightsError::InFile {
            path: path.to_owned(),
            reason: Box::new(self),
        }
    }
}
