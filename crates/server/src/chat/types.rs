//! Owns the shapes of chat completions on the wire: request, response and the chunks of a stream.

use super::conversation::Conversation;
use super::history;
use super::logprobs::ChatLogprobs;
use crate::app::App;
use crate::completions::{PromptLogprobs, PromptLogprobsInJson};
use crate::constraints::ConstraintFields;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::{Generation, check_logprobs, refuse};
use crate::tools::{ToolCallDelta, Tools};
use crate::usage::{StopReason, Usage};
use mettle_text::TextError;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The fields of a chat request, for those who read about them; `Conversation` is what they become.
#[derive(Debug, ToSchema)]
#[allow(dead_code)]
pub struct ChatRequest {
    pub model: Option<String>,
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub messages: Vec<Value>,
    /// The newer name of `max_tokens`; as long as the context allows, if neither is there.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<usize>,
    #[schema(default = false)]
    #[serde(default)]
    pub logprobs: bool,
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<usize>,
    #[schema(value_type = Option<Vec<Object>>, min_items = 1)]
    pub tools: Option<Vec<Value>>,
    /// none, auto, required or `{"type": "function", "function": {"name": ...}}`.
    #[schema(value_type = Option<Value>)]
    pub tool_choice: Option<Value>,
    #[schema(default = true)]
    #[serde(default)]
    pub parallel_tool_calls: bool,
    /// The answer begins with what the last message has already.
    #[schema(default = false)]
    #[serde(default)]
    pub echo: bool,
    pub add_generation_prompt: Option<bool>,
    #[schema(default = false)]
    #[serde(default)]
    pub continue_final_message: bool,
    #[schema(default = false)]
    #[serde(default)]
    pub add_special_tokens: bool,
    /// More variables for the template.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    pub reasoning_effort: Option<String>,
    #[serde(flatten)]
    pub generation: Generation,
    #[serde(flatten)]
    pub constraint: ConstraintFields,
}

/// Ignoring one of these would give an answer that breaks what the caller relies on.
const UNBUILT: [&str; 5] = [
    "functions",
    "function_call",
    "audio",
    "prediction",
    "use_beam_search",
];

/// Reads a request that is for a conversation, and checks what the engine does not know.
pub fn parse(fields: &Fields<'_>, app: &App) -> Result<Conversation, ApiError> {
    let model: Option<String> = fields.get("model", "a string")?;
    app.check_generating_model(model.as_deref())?;
    if let Some(field) = UNBUILT.into_iter().find(|name| fields.says_something(name)) {
        return Err(ApiError::bad(field, format!("{field} is not supported")));
    }
    let mut conversation = parse_template_fields(fields)?;
    conversation.generation = Generation::parse(fields)?;
    conversation.form = ConstraintFields::parse(fields)?.form()?;
    let generation = &mut conversation.generation;
    generation.max_tokens = fields
        .count("max_completion_tokens")?
        .or(generation.max_tokens);
    if generation.max_tokens == Some(0) {
        refuse("max_tokens", "max_tokens is 0, it must be above 0")?;
    }
    generation.validate(app)?;
    let (wanted, top) = (
        fields.flag("logprobs", false)?,
        fields.count("top_logprobs")?,
    );
    if !wanted && top.is_some_and(|top| top > 0) {
        refuse("top_logprobs", "top_logprobs needs logprobs: true")?;
    }
    check_logprobs(app, "top_logprobs", top)?;
    conversation.logprobs = wanted.then_some(top.unwrap_or(0));
    conversation.echo = fields.flag("echo", false)?;
    Ok(conversation)
}

/// What the template needs: also for `/tokenize`.
pub fn parse_template_fields(fields: &Fields<'_>) -> Result<Conversation, ApiError> {
    if fields.says_something("chat_template") {
        let message = "chat_template: templates in requests are not accepted";
        return Err(ApiError::bad("chat_template", message));
    }
    let add = fields.get::<bool>("add_generation_prompt", "true or false")?;
    let continues = fields.flag("continue_final_message", false)?;
    if continues && add == Some(true) {
        let message = TextError::GenerationPromptAndContinue.to_string();
        return Err(ApiError::bad("continue_final_message", message));
    }
    let kwargs: Option<Map<String, Value>> = fields.get("chat_template_kwargs", "an object")?;
    let mut template_kwargs = kwargs.unwrap_or_default();
    let effort: Option<String> = fields.get("reasoning_effort", "a string")?;
    if let Some(effort) = effort {
        template_kwargs
            .entry("reasoning_effort")
            .or_insert(effort.into());
    }
    Ok(Conversation {
        messages: history::parse(fields)?,
        tools: Tools::parse(fields)?,
        continues,
        no_generation_prompt: add == Some(false),
        add_special_tokens: fields.flag("add_special_tokens", false)?,
        template_kwargs,
        ..Conversation::default()
    })
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ChatResponse {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptLogprobsInJson>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChatChoice {
    pub index: usize,
    pub message: ChatMessage,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: &'static str,
    /// The stop string or token id that ended it; null for the model's own end.
    pub stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChatMessage {
    pub role: &'static str,
    pub content: Option<String>,
    pub refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The same under its older name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolCall {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: FunctionCall,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct FunctionCall {
    pub name: String,
    /// JSON in a string.
    pub arguments: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChunkChoice {
    pub index: usize,
    pub delta: ChatDelta,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The same under its older name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallDelta>,
}
