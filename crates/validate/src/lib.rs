//! Compares what a backend computes with what it should: log-probabilities of whole texts, tap by tap if need be.
//! The numbers to compare with come from outside (`fixtures/`).

mod difference;
mod runner;

pub use difference::{Difference, log_softmax};
pub use runner::{Runner, RunnerOptions, ValidateError};
