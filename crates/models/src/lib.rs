//! mettle-models
