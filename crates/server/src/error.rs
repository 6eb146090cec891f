//! Owns what a client is told when something is wrong: a status, a kind, and a message with the numbers.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use mettle_engine::EngineError;
use mettle_text::TextError;
use serde::Serialize;
use utoipa::ToSchema;

/// Seconds after which a client that was turned away may try again.
const RETRY_AFTER: &str = "1";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    #[error("{message}")]
    BadRequest {
        message: String,
        /// The field at fault, where there is one.
        param: Option<String>,
    },
    #[error("an API key is needed: Authorization: Bearer KEY")]
    Unauthorized,
    #[error("the model `{0}` does not exist here")]
    UnknownModel(String),
    #[error("there is no route {0}")]
    UnknownRoute(String),
    #[error("this route does not answer {0}")]
    WrongMethod(String),
    #[error("the body did not arrive within {0} seconds")]
    SlowBody(u64),
    #[error("the body is larger than {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Unavailable(String),
    #[error("the answer was not ready in the time that a request may take")]
    TooLate,
    #[error("{0}")]
    NotBuilt(String),
    #[error("{0}")]
    Internal(String),
}

/// The form of every error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetails,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorDetails {
    pub message: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field at fault, where there is one.
    pub param: Option<String>,
    /// The HTTP status.
    pub code: u16,
}

impl ApiError {
    pub fn bad(param: &str, message: impl Into<String>) -> ApiError {
        ApiError::BadRequest {
            message: message.into(),
            param: Some(param.to_owned()),
        }
    }

    /// What went wrong inside the engine may name files and types of ours, which are nobody else's business.
    pub fn engine_failed() -> ApiError {
        ApiError::Internal("the engine failed on this request".into())
    }

    /// What the client reads.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetails {
                message: self.to_string(),
                kind: self.kind(),
                param: self.param().map(str::to_owned),
                code: self.status().as_u16(),
            },
        }
    }

    pub fn status(&self) -> StatusCode {
        match self {
            ApiError::BadRequest { .. } => StatusCode::BAD_REQUEST,
            ApiError::Unauthorized => StatusCode::UNAUTHORIZED,
            ApiError::UnknownModel(_) | ApiError::UnknownRoute(_) => StatusCode::NOT_FOUND,
            ApiError::WrongMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            ApiError::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            ApiError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            // Not 408, which blames the client for a slow body, nor 503, which says that the same would work later.
            ApiError::TooLate => StatusCode::GATEWAY_TIMEOUT,
            ApiError::NotBuilt(_) => StatusCode::NOT_IMPLEMENTED,
            ApiError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            ApiError::BadRequest { .. } | ApiError::SlowBody(_) => "BadRequestError",
            ApiError::Unauthorized => "AuthenticationError",
            ApiError::UnknownModel(_) | ApiError::UnknownRoute(_) => "NotFoundError",
            ApiError::WrongMethod(_) => "MethodNotAllowedError",
            ApiError::BodyTooLarge { .. } => "PayloadTooLargeError",
            ApiError::Busy(_) => "RateLimitError",
            ApiError::Unavailable(_) => "ServiceUnavailableError",
            ApiError::TooLate => "TimeoutError",
            ApiError::NotBuilt(_) => "NotImplementedError",
            ApiError::Internal(_) => "InternalServerError",
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            ApiError::BadRequest { param, .. } => param.as_deref(),
            ApiError::UnknownModel(_) => Some("model"),
            _ => None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = Json(self.body());
        match self {
            ApiError::Busy(_) | ApiError::Unavailable(_) => {
                (status, [(header::RETRY_AFTER, RETRY_AFTER)], body).into_response()
            }
            ApiError::Unauthorized => {
                (status, [(header::WWW_AUTHENTICATE, "Bearer")], body).into_response()
            }
            _ => (status, body).into_response(),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        match &error {
            EngineError::ContextOverflow {
                prompt,
                max_tokens,
                context,
            } => ApiError::bad(
                match prompt < context {
                    true => "max_tokens",
                    false => "prompt",
                },
                format!(
                    "this model's maximum context length is {context} tokens, you requested {} tokens ({prompt} in the prompt, {max_tokens} for the answer)",
                    prompt.saturating_add(*max_tokens)
                ),
            ),
            EngineError::EmptyPrompt => ApiError::bad("prompt", error.to_string()),
            EngineError::OutOfVocabulary { what, .. } => ApiError::bad(what, error.to_string()),
            EngineError::OutOfRange { name, .. } | EngineError::EmptyList { name } => {
                ApiError::bad(name, error.to_string())
            }
            EngineError::MinAboveMax { .. } => ApiError::bad("min_tokens", error.to_string()),
            EngineError::NothingAsked => ApiError::bad(
                "max_tokens",
                "max_tokens is 0, which is allowed with echo only",
            ),
            EngineError::NoHidden => ApiError::NotBuilt(error.to_string()),
            EngineError::QueueFull { .. } => ApiError::Busy(error.to_string()),
            EngineError::ShuttingDown | EngineError::Dead => {
                ApiError::Unavailable(error.to_string())
            }
            _ if error.is_callers_fault() => ApiError::BadRequest {
                message: error.to_string(),
                param: None,
            },
            _ => ApiError::engine_failed(),
        }
    }
}

/// What goes wrong with a text goes wrong because of the text, but for a template that hangs.
impl From<TextError> for ApiError {
    fn from(error: TextError) -> ApiError {
        match error {
            TextError::TemplateTime { .. } | TextError::TemplateThreads { .. } => {
                ApiError::Unavailable(error.to_string())
            }
            TextError::NoChatTemplate => ApiError::bad(
                "messages",
                "this model has no chat template: use /v1/completions",
            ),
            _ => ApiError::BadRequest {
                message: error.to_string(),
                param: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_inside_the_engine_stays_there() {
        let inside = [
            EngineError::NoLogits,
            EngineError::NoStart { group: 1 },
            EngineError::NotANumber { id: 1, position: 2 },
        ];
        for error in inside {
            assert_eq!(ApiError::from(error), ApiError::engine_failed());
        }
        // The caller can do something about this one.
        let error = ApiError::from(EngineError::MinAboveMax {
            min_tokens: 3,
            max_tokens: 2,
        });
        assert_eq!(error.param(), Some("min_tokens"));
    }
}
