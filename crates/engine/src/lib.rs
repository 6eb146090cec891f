//! mettle-engine
