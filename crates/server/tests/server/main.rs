//! The server over real sockets, with a mock in place of a model.

mod bad_chats;
mod bad_inputs;
mod chat;
mod client;
mod completions;
mod connections;
mod embeddings;
mod encoder;
mod encoder_decoder;
mod fixture_model;
mod fuzz;
mod lifecycle;
mod messages;
mod openapi;
mod operations;
mod page;
mod reasoning;
mod responses;
mod routes;
mod script;
mod server;
mod streaming;
mod structured;
mod tools;
