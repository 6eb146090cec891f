//! The server over real sockets, with a mock in place of a model.

mod bad_chats;
mod bad_inputs;
mod chat;
mod client;
mod completions;
mod connections;
mod fixture_model;
mod fuzz;
mod lifecycle;
mod messages;
mod openapi;
mod operations;
mod page;
mod responses;
mod routes;
mod server;
mod streaming;
mod structured;
mod tools;
