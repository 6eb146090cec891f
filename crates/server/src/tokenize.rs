//! Owns `/tokenize` and `/detokenize`, in vLLM's dialect and in llama.cpp's.

use crate::app::App;
use crate::body::JsonBody;
use crate::chat::types::parse_template_fields;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::preparing::prepare;
use axum::Json;
use axum::extract::State;
use mettle_text::SpecialTokens;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The fields of a request, for those who read about them: a prompt, messages or a content.
#[derive(Debug, ToSchema)]
#[allow(dead_code)]
pub struct TokenizeRequest {
    pub model: Option<String>,
    pub prompt: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub messages: Option<Vec<serde_json::Value>>,
    pub content: Option<String>,
    /// With a prompt (default true) or messages (default false).
    pub add_special_tokens: Option<bool>,
    /// With a content.
    #[schema(default = false)]
    #[serde(default)]
    pub add_special: bool,
    /// With a content.
    #[schema(default = true)]
    #[serde(default)]
    pub parse_special: bool,
    #[schema(default = false)]
    #[serde(default)]
    pub return_token_strs: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Tokens {
    pub count: usize,
    pub max_model_len: usize,
    pub tokens: Vec<u32>,
    pub token_strs: Option<Vec<String>>,
}

/// The fields of a request, for those who read about them.
#[derive(Debug, ToSchema)]
#[allow(dead_code)]
pub struct DetokenizeRequest {
    pub model: Option<String>,
    pub tokens: Vec<u32>,
}

/// `{prompt}`, `{messages}` or `{content}` to token ids.
pub async fn tokenize(
    State(app): State<Arc<App>>,
    JsonBody(body): JsonBody,
) -> Result<Json<Tokens>, ApiError> {
    let tokens = prepare(&app, move |app| {
        let fields = Fields::parse(&body)?;
        let model: Option<String> = fields.get("model", "a string")?;
        app.check_model(model.as_deref())?;
        let tokens = ids_of(app, &fields)?;
        let as_text = |id: &u32| app.tokenizer.token_text(*id).unwrap_or("").to_owned();
        Ok(Tokens {
            count: tokens.len(),
            max_model_len: app.engine.limits().context,
            token_strs: fields
                .flag("return_token_strs", false)?
                .then(|| tokens.iter().map(as_text).collect()),
            tokens,
        })
    });
    tokens.await.map(Json)
}

fn ids_of(app: &App, fields: &Fields<'_>) -> Result<Vec<u32>, ApiError> {
    if let Some(prompt) = fields.get::<String>("prompt", "a string")? {
        let add_special = fields.flag("add_special_tokens", true)?;
        return app.encode(&prompt, SpecialTokens::Parse, add_special);
    }
    if let Some(content) = fields.get::<String>("content", "a string")? {
        let add_special = fields.flag("add_special", false)?;
        let specials = match fields.flag("parse_special", true)? {
            true => SpecialTokens::Parse,
            false => SpecialTokens::Plain,
        };
        return app.encode(&content, specials, add_special);
    }
    if !fields.says_something("messages") {
        return Err(ApiError::bad(
            "prompt",
            "prompt, messages or content is missing",
        ));
    }
    parse_template_fields(fields)?.prompt(app)
}

/// The text under the names that both dialects give it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Text {
    pub prompt: String,
    pub content: String,
}

pub async fn detokenize(
    State(app): State<Arc<App>>,
    JsonBody(body): JsonBody,
) -> Result<Json<Text>, ApiError> {
    let fields = Fields::parse(&body)?;
    let model: Option<String> = fields.get("model", "a string")?;
    app.check_model(model.as_deref())?;
    let tokens: Option<Vec<u32>> = fields.get("tokens", "a list of token ids")?;
    let tokens = tokens.ok_or_else(|| ApiError::bad("tokens", "tokens is missing"))?;
    let vocabulary = app.engine.limits().vocabulary;
    if let Some(id) = tokens.iter().find(|id| **id as usize >= vocabulary) {
        let last = vocabulary - 1;
        let message = format!("tokens holds token id {id}, the vocabulary ends at {last}");
        return Err(ApiError::bad("tokens", message));
    }
    let content = app.tokenizer.decode(&tokens, false);
    Ok(Json(Text {
        prompt: content.clone(),
        content,
    }))
}
