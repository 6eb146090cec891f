//! Owns `/openapi.json`: the routes, with the types that they take and give.

use crate::chat::types::{ChatChunk, ChatRequest, ChatResponse};
use crate::completions::{CompletionRequest, CompletionResponse};
use crate::embeddings::{EmbeddingRequest, EmbeddingResponse};
use crate::error::ErrorBody;
use crate::health::{Load, Version};
use crate::messages::{MessageResponse, MessagesRequest, TokenCount};
use crate::model_list::{ModelCard, ModelList};
use crate::responses::{ResponseObject, ResponsesRequest};
use crate::state::EngineState;
use crate::tokenize::{DetokenizeRequest, Text, TokenizeRequest, Tokens};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use utoipa::OpenApi;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Mettle",
        description = "Large language models on this machine"
    ),
    components(schemas(
        ChatChunk,
        ChatRequest,
        ChatResponse,
        CompletionRequest,
        CompletionResponse,
        DetokenizeRequest,
        EmbeddingRequest,
        EmbeddingResponse,
        EngineState,
        ErrorBody,
        Load,
        MessageResponse,
        MessagesRequest,
        ModelCard,
        ModelList,
        ResponseObject,
        ResponsesRequest,
        Text,
        TokenCount,
        TokenizeRequest,
        Tokens,
        Version,
    ))
)]
struct Types;

/// Method, path, what it is for, the type of its body and of its answer; empty where there is none.
const ROUTES: [(&str, &str, &str, &str, &str); 18] = [
    ("get", "/health", "Whether the server works", "", ""),
    ("get", "/ping", "Whether the server works", "", ""),
    ("get", "/version", "Which version this is", "", "Version"),
    (
        "get",
        "/load",
        "How many requests are under way",
        "",
        "Load",
    ),
    ("get", "/metrics", "Numbers for Prometheus", "", ""),
    (
        "get",
        "/engine/state",
        "What the engine is doing",
        "",
        "EngineState",
    ),
    ("get", "/v1/models", "The models", "", "ModelList"),
    ("get", "/v1/models/{id}", "One model", "", "ModelCard"),
    (
        "post",
        "/v1/completions",
        "Continues texts",
        "CompletionRequest",
        "CompletionResponse",
    ),
    (
        "post",
        "/v1/chat/completions",
        "Answers messages",
        "ChatRequest",
        "ChatResponse",
    ),
    (
        "post",
        "/v1/embeddings",
        "Turns texts into vectors",
        "EmbeddingRequest",
        "EmbeddingResponse",
    ),
    (
        "post",
        "/v1/messages",
        "Answers messages, in Anthropic's form",
        "MessagesRequest",
        "MessageResponse",
    ),
    (
        "post",
        "/v1/messages/count_tokens",
        "Counts the tokens of messages",
        "MessagesRequest",
        "TokenCount",
    ),
    (
        "post",
        "/v1/responses",
        "Answers an input",
        "ResponsesRequest",
        "ResponseObject",
    ),
    (
        "post",
        "/tokenize",
        "Token ids of a text",
        "TokenizeRequest",
        "Tokens",
    ),
    (
        "post",
        "/detokenize",
        "The text of token ids",
        "DetokenizeRequest",
        "Text",
    ),
    ("post", "/ping", "Whether the server works", "", ""),
    ("get", "/openapi.json", "This document", "", ""),
];

/// Routes whose answer may come as events.
const STREAMS: [&str; 4] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
];

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut document = serde_json::to_value(Types::openapi()).expect("types have plain names");
    let mut paths = Map::new();
    for (method, path, about, takes, gives) in ROUTES {
        let operation = operation(method, path, about, takes, gives);
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[method] = operation;
    }
    document["paths"] = Value::Object(paths);
    document["components"]["securitySchemes"] =
        json!({"key": {"type": "http", "scheme": "bearer"}});
    document.to_string()
});

pub async fn document() -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, DOCUMENT.as_str()).into_response()
}

fn operation(method: &str, path: &str, about: &str, takes: &str, gives: &str) -> Value {
    let content = |name: &str| {
        let reference = format!("#/components/schemas/{name}");
        json!({"application/json": {"schema": {"$ref": reference}}})
    };
    let mut done = json!({ "description": about });
    if !gives.is_empty() {
        done["content"] = content(gives);
    }
    if STREAMS.contains(&path) {
        // Without a schema: readers take one for that of each event, and events have several forms.
        done["content"]["text/event-stream"] = json!({});
    }
    let mut responses = json!({ "200": done });
    let error = json!({"description": "What is wrong", "content": content("ErrorBody")});
    let codes: &[&str] = match takes.is_empty() {
        true => &["401", "404", "503"],
        false => &[
            "400", "401", "404", "408", "413", "429", "500", "501", "503", "504",
        ],
    };
    for code in codes {
        responses[*code] = error.clone();
    }
    let id = format!("{method}{}", path.replace(['/', '{', '}', '.'], "_"));
    let mut operation = json!({"summary": about, "operationId": id, "responses": responses});
    if !takes.is_empty() {
        operation["requestBody"] = json!({"required": true, "content": content(takes)});
    }
    if path.contains("{id}") {
        let text = json!({"type": "string"});
        operation["parameters"] =
            json!([{"name": "id", "in": "path", "required": true, "schema": text}]);
    }
    if path.starts_with("/v1") || path.starts_with("/engine") {
        operation["security"] = json!([{}, {"key": []}]);
    }
    operation
}

fn plain(kind: Type) -> Schema {
    ObjectBuilder::new().schema_type(kind).build().into()
}

fn list(items: Schema) -> Schema {
    ArrayBuilder::new().items(RefOr::T(items)).build().into()
}

/// A string or a list of strings.
pub fn texts_schema() -> Schema {
    let one_of = OneOfBuilder::new();
    let one_of = one_of.item(plain(Type::String));
    one_of.item(list(plain(Type::String))).build().into()
}

fn one_of<const N: usize>(words: [&str; N]) -> Schema {
    let text = ObjectBuilder::new().schema_type(Type::String);
    text.enum_values(Some(words)).build().into()
}

pub fn encoding_schema() -> Schema {
    one_of(["float", "base64"])
}

pub fn pooling_schema() -> Schema {
    one_of(["last", "mean", "cls"])
}

/// Numbers, or the same as base64.
pub fn vector_schema() -> Schema {
    let one_of = OneOfBuilder::new().item(list(plain(Type::Number)));
    one_of.item(plain(Type::String)).build().into()
}

/// The four shapes of a prompt.
pub fn prompt_schema() -> Schema {
    let ids = || list(plain(Type::Integer));
    let one_of = OneOfBuilder::new().item(plain(Type::String));
    let one_of = one_of.item(list(plain(Type::String)));
    one_of.item(ids()).item(list(ids())).build().into()
}
