//! mettle-server
