//! Owns which path leads where.

use crate::app::App;
use crate::error::ApiError;
use crate::{auth, completions, health, model_list, tokenize};
use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::routing::{get, post};
use std::sync::Arc;

/// All routes of the server.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(health::health))
        .route("/ping", get(health::health).post(health::health))
        .route("/version", get(health::version))
        .route("/v1/models", get(model_list::list))
        // The names of hub models have a slash inside.
        .route("/v1/models/{*id}", get(model_list::one))
        .route("/v1/completions", post(completions::create))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .fallback(async |uri: Uri| ApiError::UnknownRoute(uri.path().to_owned()))
        .method_not_allowed_fallback(async |method: Method| {
            ApiError::WrongMethod(method.to_string())
        })
        .layer(middleware::from_fn_with_state(app.clone(), auth::guard))
        .with_state(app)
}
