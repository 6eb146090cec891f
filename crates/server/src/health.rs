//! Owns the routes that say whether the server works, what it is and how busy.

use crate::app::App;
use crate::error::ApiError;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// 200 with nothing in it, or 503 once the engine is dead or the server is going down.
pub async fn health(State(app): State<Arc<App>>) -> Result<(), ApiError> {
    app.check_ready()
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    pub version: &'static str,
}

pub async fn version() -> Json<Version> {
    let version = env!("CARGO_PKG_VERSION");
    Json(Version { version })
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Load {
    /// Requests accepted and not ended.
    pub server_load: usize,
}

pub async fn load(State(app): State<Arc<App>>) -> Json<Load> {
    let server_load = app.engine.stats().live;
    Json(Load { server_load })
}
