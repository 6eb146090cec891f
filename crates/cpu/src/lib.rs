//! mettle-cpu
