//! mettle-plan
