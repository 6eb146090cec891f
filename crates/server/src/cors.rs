//! Owns which web pages may read answers: the headers that browsers ask for.

use crate::app::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Seconds for which a browser need not ask again.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, OPTIONS");
const EXPOSED: HeaderValue = HeaderValue::from_static("x-request-id, retry-after");

pub async fn allow(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let allowed = allowed_origin(&app.options.allowed_origins, request.headers());
    let asked = request
        .headers()
        .get(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .cloned();
    let is_preflight = request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match is_preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        if is_preflight {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
            if let Some(asked) = asked {
                headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
            }
        }
    }
    response
}

/// Cookies mean nothing here, so that `*` may be said to anybody.
fn allowed_origin(allowed: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    if allowed.iter().any(|known| known == "*") {
        return Some(HeaderValue::from_static("*"));
    }
    let is_known = |known: &String| known.as_bytes() == origin.as_bytes();
    allowed.iter().any(is_known).then(|| origin.clone())
}
