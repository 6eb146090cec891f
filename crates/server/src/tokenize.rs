//! Owns `/tokenize` and `/detokenize`, in vLLM's dialect and in llama.cpp's.

use crate::app::App;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::fields::Fields;
use axum::Json;
use axum::extract::State;
use mettle_text::{Message, RenderOptions, SpecialTokens, TextError, encode_chat};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

#[derive(Debug, Serialize)]
pub struct Tokens {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

/// `{prompt}`, `{messages}` or `{content}` to token ids.
pub async fn tokenize(
    State(app): State<Arc<App>>,
    JsonBody(body): JsonBody,
) -> Result<Json<Tokens>, ApiError> {
    let encode = move || {
        let fields = Fields::parse(&body)?;
        let model: Option<String> = fields.get("model", "a string")?;
        app.check_model(model.as_deref())?;
        let tokens = ids_of(&app, &fields)?;
        let as_text = |id: &u32| app.tokenizer.token_text(*id).unwrap_or("").to_owned();
        Ok(Tokens {
            count: tokens.len(),
            max_model_len: app.engine.limits().context,
            token_strs: fields
                .flag("return_token_strs", false)?
                .then(|| tokens.iter().map(as_text).collect()),
            tokens,
        })
    };
    tokio::task::spawn_blocking(encode)
        .await
        .map_err(|_| ApiError::Internal("the text could not be tokenized".into()))?
        .map(Json)
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
    let messages: Option<Vec<Message>> = fields.get("messages", "a list of messages")?;
    let Some(messages) = messages else {
        return Err(ApiError::bad(
            "prompt",
            "prompt, messages or content is missing",
        ));
    };
    if fields.says_something("chat_template") {
        let message = "chat_template: templates in requests are not accepted";
        return Err(ApiError::bad("chat_template", message));
    }
    let template = app.options.template.as_ref();
    let template = template.ok_or(ApiError::from(TextError::NoChatTemplate))?;
    let kwargs: Option<Map<String, Value>> = fields.get("chat_template_kwargs", "an object")?;
    let options = RenderOptions {
        add_generation_prompt: fields.flag("add_generation_prompt", true)?,
        continue_final_message: fields.flag("continue_final_message", false)?,
        tools: fields.get("tools", "a list")?,
        kwargs: kwargs.unwrap_or_default(),
    };
    Ok(encode_chat(&app.tokenizer, template, &messages, &options)?)
}

/// The text under the names that both dialects give it.
#[derive(Debug, Serialize)]
pub struct Text {
    prompt: String,
    content: String,
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
