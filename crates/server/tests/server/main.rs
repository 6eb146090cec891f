//! The server over real sockets, with a mock in place of a model.

mod bad_inputs;
mod client;
mod completions;
mod connections;
mod lifecycle;
mod routes;
mod server;
