//! The engine from outside, on the mock executable: the same tokens however they are computed, and every way to end.

mod batching;
mod choices;
mod conservation;
mod constraints;
mod contents;
mod encoders;
mod endings;
mod numbers;
mod same_tokens;
mod setup;
