//! Owns which path leads where.

use crate::app::App;
use crate::error::ApiError;
use crate::{
    auth, chat, completions, cors, embeddings, health, host, messages, metrics, model_list,
    openapi, page, request_id, responses, state, tokenize,
};
use axum::Router;
use axum::http::Method;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use std::sync::Arc;

/// All routes of the server.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(health::health))
        .route("/ping", get(health::health).post(health::health))
        .route("/version", get(health::version))
        .route("/load", get(health::load))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/engine/state", get(state::state))
        .route("/v1/models", get(model_list::list))
        // The names of hub models have a slash inside.
        .route("/v1/models/{*id}", get(model_list::one))
        .route("/v1/completions", post(completions::create))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/embeddings", post(embeddings::create))
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/responses", post(responses::create))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .fallback(page::file)
        .method_not_allowed_fallback(async |method: Method| {
            ApiError::WrongMethod(method.to_string())
        })
        // The last one is the first that a request meets.
        .layer(from_fn_with_state(app.clone(), auth::guard))
        .layer(from_fn(host::check))
        .layer(from_fn_with_state(app.clone(), cors::allow))
        .layer(from_fn_with_state(app.clone(), request_id::name))
        .with_state(app)
}
