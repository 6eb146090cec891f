//! Owns reading a request's body: JSON by its content type, within a limit of size and time.

use crate::app::App;
use crate::error::ApiError;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use std::sync::Arc;
use std::time::Duration;

/// Slower clients than this are taken for gone.
const BODY_SECONDS: u64 = 60;

/// The bytes of a JSON body.
pub struct JsonBody(pub Bytes);

impl FromRequest<Arc<App>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<JsonBody, ApiError> {
        check_content_type(request.headers())?;
        let limit = app.options.body_limit;
        let announced = request
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit as u64) {
            return Err(ApiError::BodyTooLarge { limit });
        }
        let read = read(request.into_body(), limit);
        tokio::time::timeout(Duration::from_secs(BODY_SECONDS), read)
            .await
            .map_err(|_| ApiError::SlowBody(BODY_SECONDS))?
            .map(JsonBody)
    }
}

async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, limit).await.map_err(|error| {
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            if inner.to_string().contains("limit") {
                return ApiError::BodyTooLarge { limit };
            }
            cause = inner.source();
        }
        ApiError::BadRequest {
            message: "the body broke off".into(),
            param: None,
        }
    })
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    let kind = text.split(';').next().unwrap_or("").trim();
    let kind = kind.to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    Err(ApiError::BadRequest {
        message: match text {
            "" => "the header Content-Type: application/json is missing".to_owned(),
            other => format!("the content type is {other}, it must be application/json"),
        },
        param: None,
    })
}
