//! The HTTP face of an engine: OpenAI's completions, chat, responses and embeddings, Anthropic's messages, tokenizer routes, metrics.
//!
//! [`App`] holds what requests need (an engine handle, a tokenizer, names and keys), [`router`] the routes, and [`serve`]
//! runs them until told to stop. A request is parsed and checked at the edge; JSON never reaches the engine.

mod activity;
mod answers;
mod app;
mod auth;
mod body;
mod chat;
mod completions;
mod connections;
mod constraints;
mod cors;
mod embeddings;
mod engine_request;
mod error;
mod fields;
mod generation;
mod health;
mod host;
mod messages;
mod metrics;
mod model_list;
mod openapi;
mod page;
mod patient;
mod preparing;
mod rates;
mod reading;
mod request_id;
mod responses;
mod routes;
mod serving;
mod sse;
mod state;
mod tokenize;
mod tools;
mod usage;

pub use app::{App, AppOptions, Asset, EngineFacts};
pub use error::ApiError;
pub use mettle_engine::Pooling;
pub use mettle_structured::{ReasoningFormat, ToolFormat};
pub use routes::router;
pub use serving::serve;
