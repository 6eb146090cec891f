//! Owns a message in Anthropic's form, and how its errors look.

use crate::chat::Gathered;
use crate::error::ApiError;
use crate::usage::{Ending, StopReason, Usage};
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct MessageResponse {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub role: &'static str,
    pub model: String,
    pub content: Vec<Block>,
    /// end_turn, max_tokens, stop_sequence or tool_use.
    pub stop_reason: Option<&'static str>,
    pub stop_sequence: Option<String>,
    pub usage: MessageUsage,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Thinking {
        thinking: String,
        signature: String,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// Tokens of the prompt that came from the cache are not among the input tokens.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct MessageUsage {
    pub input_tokens: usize,
    pub output_tokens: usize,
    pub cache_creation_input_tokens: usize,
    pub cache_read_input_tokens: usize,
}

impl From<Usage> for MessageUsage {
    fn from(usage: Usage) -> MessageUsage {
        let cached = usage.prompt_tokens_details.cached_tokens;
        MessageUsage {
            input_tokens: usage.prompt_tokens - cached,
            output_tokens: usage.completion_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
        }
    }
}

pub fn blocks(gathered: Gathered) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !gathered.reasoning.is_empty() {
        blocks.push(Block::Thinking {
            thinking: gathered.reasoning,
            signature: String::new(),
        });
    }
    if !gathered.content.is_empty() {
        blocks.push(Block::Text {
            text: gathered.content,
        });
    }
    for call in gathered.calls {
        blocks.push(Block::ToolUse {
            id: call.id,
            name: call.function.name,
            input: serde_json::from_str(&call.function.arguments).unwrap_or_else(|_| json!({})),
        });
    }
    blocks
}

/// Why it ended, and the stop sequence that ended it.
pub fn stop_reason(ending: Ending) -> Result<(&'static str, Option<String>), ApiError> {
    Ok(match (ending.finish_reason, ending.stop_reason) {
        ("stop", Some(StopReason::Text(text))) => ("stop_sequence", Some(text)),
        ("length", _) => ("max_tokens", None),
        ("tool_calls", _) => ("tool_use", None),
        ("abort", _) => return Err(ApiError::Unavailable("the answer was cut off".into())),
        _ => ("end_turn", None),
    })
}

/// An error in a form that clients of both APIs read.
pub struct MessageError(pub ApiError);

impl MessageError {
    pub fn body(&self) -> Value {
        let error = self.0.body().error;
        let kind = match error.code {
            400 => "invalid_request_error",
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            _ => "api_error",
        };
        json!({"type": "error", "error": {
            "type": kind, "message": error.message, "param": error.param, "code": error.code,
        }})
    }
}

impl From<ApiError> for MessageError {
    fn from(error: ApiError) -> MessageError {
        MessageError(error)
    }
}

impl IntoResponse for MessageError {
    fn into_response(self) -> Response {
        let body = self.body();
        // Status and headers are those of every error.
        let mut response = self.0.into_response();
        let fresh = Json(body).into_response();
        response.headers_mut().remove("content-length");
        *response.body_mut() = fresh.into_body();
        response
    }
}
