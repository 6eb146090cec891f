//! Owns the lock of `/v1` and `/engine`: which requests carry a key that fits.

use crate::app::App;
use crate::error::ApiError;
use crate::messages::MessageError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let keys = &app.options.api_keys;
    let path = request.uri().path();
    let is_guarded = path.starts_with("/v1") || path.starts_with("/engine/");
    // A browser asks with OPTIONS before it may send a key.
    let is_open = keys.is_empty() || !is_guarded || request.method() == Method::OPTIONS;
    if !is_open && !key_of(request.headers()).is_some_and(|key| fits(keys, key)) {
        return match path.starts_with("/v1/messages") {
            true => MessageError(ApiError::Unauthorized).into_response(),
            false => ApiError::Unauthorized.into_response(),
        };
    }
    next.run(request).await
}

fn key_of(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        return scheme.eq_ignore_ascii_case(b"bearer ").then_some(key);
    }
    headers.get("x-api-key").map(|value| value.as_bytes())
}

/// Takes the same time whichever key fits and wherever the first wrong byte is.
fn fits(keys: &[String], given: &[u8]) -> bool {
    keys.iter()
        .map(|key| same(key.as_bytes(), given))
        .fold(false, |any, this| any | this)
}

fn same(key: &[u8], given: &[u8]) -> bool {
    let differences = key
        .iter()
        .zip(given)
        .fold(0, |differences, (a, b)| differences | (a ^ b));
    std::hint::black_box(differences) == 0 && key.len() == given.len()
}
