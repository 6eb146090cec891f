//! Compares what a backend computes with what it should: log-probabilities of whole texts, tap by tap if need be.
//! The numbers to compare with come from outside (`fixtures/`).

mod compare;
mod difference;
mod fixture;
mod runner;

pub use compare::{Comparison, TapDifference, compare};
pub use difference::{Difference, log_softmax};
pub use fixture::{FixtureResult, Reference, check_fixture};
pub use runner::{Runner, RunnerOptions, ValidateError};
