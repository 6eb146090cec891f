//! Owns a request in Anthropic's form and its way to a conversation.

use crate::app::App;
use crate::chat::{Conversation, history};
use crate::constraints::Form;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::Generation;
use crate::tools::{ToolChoice, Tools};
use mettle_structured::Spec;
use mettle_text::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// The fields of a request, for those who read about them.
#[derive(Debug, ToSchema)]
#[allow(dead_code)]
pub struct MessagesRequest {
    pub model: Option<String>,
    #[schema(value_type = Vec<Object>, min_items = 1)]
    pub messages: Vec<Value>,
    #[schema(minimum = 1)]
    pub max_tokens: usize,
    /// A text or a list of text blocks.
    #[schema(value_type = Option<Value>)]
    pub system: Option<Value>,
    pub stop_sequences: Option<Vec<String>>,
    #[schema(default = false)]
    #[serde(default)]
    pub stream: bool,
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f32>,
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// `{"type": "auto" | "any" | "tool" | "none", "name": ...}`
    #[schema(value_type = Option<Object>)]
    pub tool_choice: Option<Value>,
    /// `{"format": {"type": "json_schema", "schema": ...}}`
    #[schema(value_type = Option<Object>)]
    pub output_config: Option<Value>,
    /// What `output_config.format` was called before.
    #[schema(value_type = Option<Object>)]
    pub output_format: Option<Value>,
}

#[derive(Deserialize)]
struct Turn {
    role: String,
    content: Value,
}

/// Reads what both routes have: the conversation, without how to answer it.
pub fn parse_conversation(fields: &Fields<'_>, app: &App) -> Result<Conversation, ApiError> {
    let model: Option<String> = fields.get("model", "a string")?;
    app.check_generating_model(model.as_deref())?;
    let turns: Option<Vec<Turn>> = fields.get(
        "messages",
        "a list of messages, each with a role and a content",
    )?;
    let turns = turns.unwrap_or_default();
    if turns.is_empty() {
        return Err(bad("messages must have at least one message"));
    }
    let mut messages = Vec::new();
    if let Some(system) = fields.get::<Value>("system", "a string or a list of text blocks")? {
        let text = text_of(&system)
            .map_err(|_| ApiError::bad("system", "system must be a string or text blocks"))?;
        if !text.is_empty() {
            messages.push(Message::new("system", text));
        }
    }
    for turn in turns {
        add_turn(&mut messages, turn)?;
    }
    let continues = messages
        .last()
        .is_some_and(|last| last.role == "assistant" && !last.extra.contains_key("tool_calls"));
    Ok(Conversation {
        messages,
        tools: tools(fields)?,
        continues,
        ..Conversation::default()
    })
}

/// Reads a request for an answer.
pub fn parse(fields: &Fields<'_>, app: &App) -> Result<Conversation, ApiError> {
    let mut conversation = parse_conversation(fields, app)?;
    let Some(max_tokens) = fields.count("max_tokens")? else {
        return Err(ApiError::bad("max_tokens", "max_tokens is missing"));
    };
    if max_tokens == 0 {
        let message = "max_tokens is 0, it must be above 0";
        return Err(ApiError::bad("max_tokens", message));
    }
    let stops: Option<Vec<String>> = fields.get("stop_sequences", "a list of strings")?;
    let stop = stops.unwrap_or_default();
    if stop.iter().any(String::is_empty) {
        let message = "a text in stop_sequences must not be empty";
        return Err(ApiError::bad("stop_sequences", message));
    }
    conversation.generation = Generation {
        max_tokens: Some(max_tokens),
        stop,
        stream: fields.flag("stream", false)?,
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        top_k: fields.integer("top_k")?,
        ..Generation::default()
    };
    conversation.generation.validate(app)?;
    conversation.form = form(fields)?;
    Ok(conversation)
}

fn form(fields: &Fields<'_>) -> Result<Option<Form>, ApiError> {
    let expected = "an object";
    let config: Option<Map<String, Value>> = fields.get("output_config", expected)?;
    let in_config = config.and_then(|mut config| config.remove("format"));
    let old: Option<Map<String, Value>> = fields.get("output_format", expected)?;
    let (param, format) = match in_config.filter(|format| !format.is_null()) {
        Some(format) => ("output_config.format", format),
        None => ("output_format", old.map_or(Value::Null, Value::Object)),
    };
    match (&format, &format["type"], &format["schema"]) {
        (Value::Null, ..) => Ok(None),
        (_, kind, schema) if kind == "json_schema" && !schema.is_null() => {
            Ok(Some(Form::new(param, Spec::JsonSchema(schema.clone()))))
        }
        _ => {
            let message = format!("{param} must be {{\"type\": \"json_schema\", \"schema\": ...}}");
            Err(ApiError::bad(param, message))
        }
    }
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad("messages", message)
}

fn text_of(content: &Value) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => history::joined(blocks),
        _ => Err(bad("a content must be a string or a list of blocks")),
    }
}

/// One turn may hold text, calls and results of calls, which are messages of their own to a template.
fn add_turn(messages: &mut Vec<Message>, turn: Turn) -> Result<(), ApiError> {
    let role = turn.role.as_str();
    if !["user", "assistant", "system"].contains(&role) {
        return Err(bad(format!(
            "a role is {role:?}, it must be user or assistant"
        )));
    }
    let Value::Array(blocks) = &turn.content else {
        messages.push(Message::new(role, text_of(&turn.content)?));
        return Ok(());
    };
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_use") => calls.push(call(block)?),
            Some("tool_result") => {
                let content = match &block["content"] {
                    Value::Null => String::new(),
                    content => text_of(content)?,
                };
                let mut result = Message::new("tool", content);
                let id = block["tool_use_id"].clone();
                result.extra.insert("tool_call_id".to_owned(), id);
                messages.push(result);
            }
            _ => texts.push(block.clone()),
        }
    }
    if texts.is_empty() && calls.is_empty() {
        return match blocks.is_empty() {
            true => Err(bad("a content must not be an empty list")),
            // Results alone were messages already.
            false => Ok(()),
        };
    }
    let mut message = Message::new(role, history::joined(&texts)?);
    if !calls.is_empty() {
        message.extra.insert("tool_calls".to_owned(), calls.into());
    }
    messages.push(message);
    Ok(())
}

fn call(block: &Value) -> Result<Value, ApiError> {
    if !block["name"].is_string() || !block["input"].is_object() {
        return Err(bad("a tool_use block must have a name and an input"));
    }
    let function = json!({"name": block["name"], "arguments": block["input"]});
    Ok(json!({"id": block["id"], "type": "function", "function": function}))
}

/// Tools in the form that templates know.
fn tools(fields: &Fields<'_>) -> Result<Tools, ApiError> {
    let given: Option<Vec<Map<String, Value>>> = fields.get("tools", "a list of tools")?;
    let choice: Option<Value> = fields.get("tool_choice", "an object with a type")?;
    let function = |mut tool: Map<String, Value>| {
        let mut take = |name: &str| tool.remove(name).unwrap_or(Value::Null);
        let function = json!({
            "name": take("name"), "description": take("description"), "parameters": take("input_schema"),
        });
        json!({"type": "function", "function": function})
    };
    let definitions: Vec<Value> = given
        .unwrap_or_default()
        .into_iter()
        .map(function)
        .collect();
    let disables_parallel = choice
        .as_ref()
        .is_some_and(|choice| choice["disable_parallel_tool_use"] == true);
    let (kind, name) = match &choice {
        None => (None, None),
        Some(choice) => (choice["type"].as_str(), choice["name"].as_str()),
    };
    let choice = match (&choice, kind, name) {
        (None, ..) if definitions.is_empty() => ToolChoice::None,
        (None, ..) | (_, Some("auto"), _) => ToolChoice::Auto,
        (_, Some("any"), _) => ToolChoice::Required,
        (_, Some("none"), _) => ToolChoice::None,
        (_, Some("tool"), Some(name)) => ToolChoice::Named(name.to_owned()),
        _ => {
            let message = "tool_choice must have the type auto, any, none, or tool with a name";
            return Err(ApiError::bad("tool_choice", message));
        }
    };
    let tools = Tools {
        definitions,
        choice,
        parallel: !disables_parallel,
    };
    tools.check()?;
    Ok(tools)
}
