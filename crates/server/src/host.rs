//! Owns the check that a request says once, and in one piece, which host it is for.

use crate::error::ApiError;
use axum::extract::Request;
use axum::http::{Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

pub async fn check(request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let first = hosts.next();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(byte);
    let is_fine = match first {
        None => request.version() < Version::HTTP_11,
        Some(host) => hosts.next().is_none() && host.as_bytes().iter().all(is_plain),
    };
    match is_fine {
        true => next.run(request).await,
        false => ApiError::BadRequest {
            message: "the header Host must be there once and name a host".into(),
            param: None,
        }
        .into_response(),
    }
}
