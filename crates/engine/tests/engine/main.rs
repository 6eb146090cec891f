//! The engine from outside, on the mock executable: the same tokens however they are computed, and every way to end.

mod conservation;
mod contents;
mod endings;
mod same_tokens;
mod setup;
