//! The HTTP face of an engine: OpenAI's completions, model list, tokenizer routes and health.
//!
//! [`App`] holds what requests need (an engine handle, a tokenizer, names and keys), [`router`] the routes, and [`serve`]
//! runs them until told to stop. A request is parsed and checked at the edge; JSON never reaches the engine.

mod app;
mod auth;
mod body;
mod completions;
mod error;
mod fields;
mod health;
mod model_list;
mod routes;
mod serving;
mod tokenize;

pub use app::{App, AppOptions};
pub use error::ApiError;
pub use routes::router;
pub use serving::serve;
