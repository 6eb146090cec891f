//! mettle-text
