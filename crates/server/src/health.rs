//! Owns the routes that say whether the server works and what it is.

use crate::app::App;
use crate::error::ApiError;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// 200 with nothing in it, or 503 once the engine is dead or the server is going down.
pub async fn health(State(app): State<Arc<App>>) -> Result<(), ApiError> {
    app.check_ready()
}

pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}
