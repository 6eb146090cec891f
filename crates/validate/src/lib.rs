//! mettle-validate
