//! Owns `/v1/completions`: raw text or token ids in, the continuation out, not streamed yet.

mod answers;
mod convert;
mod logprobs;
mod prompt;
mod types;
mod validate;

use crate::app::{App, seconds_since_1970};
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::fields::Fields;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use types::{CompletionRequest, CompletionResponse};

pub async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Json<CompletionResponse>, ApiError> {
    app.check_ready()?;
    let id = format!("cmpl-{}", request_id(&app, &headers));
    // Tokenizing a long prompt takes longer than other connections should wait.
    let prepared = app.clone();
    let prepare = move || {
        let request = CompletionRequest::parse(&Fields::parse(&body)?)?;
        request.validate()?;
        request.into_prompts(&prepared)
    };
    let prompts = tokio::task::spawn_blocking(prepare)
        .await
        .map_err(|_| ApiError::Internal("the request could not be prepared".into()))??;
    let (choices, usage) = answers::answer_all(&app, prompts).await?;
    Ok(Json(CompletionResponse {
        id,
        object: "text_completion",
        created: seconds_since_1970(),
        model: app.model_name().to_owned(),
        choices,
        usage,
    }))
}

/// The caller's own id where it has a plain one, else a random one.
fn request_id(app: &App, headers: &HeaderMap) -> String {
    let is_plain = |id: &&str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        (1..=128).contains(&id.len()) && id.chars().all(allowed)
    };
    let given = headers.get("x-request-id").and_then(|v| v.to_str().ok());
    match given.filter(is_plain) {
        Some(id) => id.to_owned(),
        // Hashers of the standard library have random keys.
        None => {
            let number = app.next_number();
            let (high, low) = (RandomState::new(), RandomState::new());
            format!(
                "{:016x}{:016x}",
                high.hash_one(number),
                low.hash_one(number)
            )
        }
    }
}
