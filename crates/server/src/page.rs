//! Owns the way to the web page's files, where the server was given any.

use crate::app::{App, Asset};
use crate::error::ApiError;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// What no other route answers: a file of the page, or nothing.
pub async fn file(
    State(app): State<Arc<App>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = uri.path();
    let asset = app.options.page.and_then(|page| page(path));
    match asset {
        Some(asset) if [Method::GET, Method::HEAD].contains(&method) => answer(asset, &headers),
        Some(_) => ApiError::WrongMethod(method.to_string()).into_response(),
        None => ApiError::UnknownRoute(path.to_owned()).into_response(),
    }
}

fn answer(asset: Asset, headers: &HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH);
    let known = known.and_then(|tags| tags.to_str().ok()).unwrap_or("");
    let is_known = known.split(',').any(|tag| tag.trim() == asset.etag);
    let headers = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::ETAG, asset.etag),
        // The files change with the program, under the same names.
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            asset.content_security_policy,
        ),
    ];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, asset.bytes).into_response(),
    }
}
