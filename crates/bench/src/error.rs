//! Owns what can go wrong before a benchmark measures anything. Requests that fail while it runs are results.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{url} is no address of a server: {why}")]
    BadUrl { url: String, why: &'static str },
    #[error("no server answers at {url}: {why}")]
    Unreachable { url: String, why: String },
    #[error("{url} refused {what}: {why}")]
    Refused {
        url: String,
        what: &'static str,
        why: String,
    },
    #[error("the server names no model; --model names one")]
    NoModel,
    #[error(
        "a request needs {needed} tokens ({input} in, {output} out), the server's context holds {limit}"
    )]
    TooLong {
        input: usize,
        output: usize,
        needed: usize,
        limit: usize,
    },
    #[error("cannot use {} as a dataset: {why}", path.display())]
    BadDataset { path: PathBuf, why: String },
}
