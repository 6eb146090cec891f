//! mettle-weights
