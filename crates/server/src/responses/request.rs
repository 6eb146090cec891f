//! Owns a request in the form of OpenAI's Responses API and its way to a conversation.

use crate::app::App;
use crate::chat::{Conversation, history};
use crate::constraints::{ConstraintFields, Form};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::{Generation, check_logprobs};
use crate::tools::Tools;
use mettle_text::Message;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// The fields of a request, for those who read about them.
#[derive(Debug, ToSchema)]
#[allow(dead_code)]
pub struct ResponsesRequest {
    pub model: Option<String>,
    /// A text or a list of items.
    #[schema(value_type = Value)]
    pub input: Value,
    /// A system message before the input.
    pub instructions: Option<String>,
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<usize>,
    #[schema(default = false)]
    #[serde(default)]
    pub stream: bool,
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f32>,
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// `{"format": {"type": "text" | "json_object" | "json_schema", ...}}`
    #[schema(value_type = Option<Object>)]
    pub text: Option<Value>,
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    #[schema(value_type = Option<Value>)]
    pub tool_choice: Option<Value>,
    #[schema(default = true)]
    #[serde(default)]
    pub parallel_tool_calls: bool,
    /// `{"effort": ...}`
    #[schema(value_type = Option<Object>)]
    pub reasoning: Option<Value>,
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<usize>,
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
}

/// What the response says again.
#[derive(Clone, Debug)]
pub struct Repeated {
    pub instructions: Option<String>,
    pub max_output_tokens: Option<usize>,
    pub temperature: f32,
    pub top_p: f32,
    pub text: Value,
    pub tools: Vec<Value>,
    pub tool_choice: Value,
    pub parallel_tool_calls: bool,
    pub reasoning: Value,
    pub metadata: Value,
}

/// Nothing is kept here that these could refer to.
const UNBUILT: [&str; 4] = [
    "previous_response_id",
    "conversation",
    "background",
    "prompt",
];

pub fn parse(fields: &Fields<'_>, app: &App) -> Result<(Conversation, Repeated), ApiError> {
    let model: Option<String> = fields.get("model", "a string")?;
    app.check_generating_model(model.as_deref())?;
    if let Some(field) = UNBUILT.into_iter().find(|name| fields.says_something(name)) {
        let message = format!("{field} is not supported: responses are not kept");
        return Err(ApiError::bad(field, message));
    }
    let instructions: Option<String> = fields.get("instructions", "a string")?;
    let mut messages = Vec::new();
    if let Some(text) = instructions.as_ref().filter(|text| !text.is_empty()) {
        messages.push(Message::new("system", text.as_str()));
    }
    add_input(&mut messages, fields)?;
    let max_output_tokens = fields.count("max_output_tokens")?;
    if max_output_tokens == Some(0) {
        let message = "max_output_tokens is 0, it must be above 0";
        return Err(ApiError::bad("max_output_tokens", message));
    }
    let object = "an object";
    let text: Option<Map<String, Value>> = fields.get("text", object)?;
    let reasoning: Option<Map<String, Value>> = fields.get("reasoning", object)?;
    let metadata: Option<Map<String, Value>> = fields.get("metadata", object)?;
    let tools = tools(fields)?;
    let generation = Generation {
        max_tokens: max_output_tokens,
        stream: fields.flag("stream", false)?,
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        ..Generation::default()
    };
    generation.validate(app)?;
    let top = fields.count("top_logprobs")?;
    check_logprobs(app, "top_logprobs", top)?;
    let format = text.as_ref().and_then(|text| text.get("format")).cloned();
    let mut template_kwargs = Map::new();
    let effort = reasoning.as_ref().and_then(|r| r.get("effort"));
    if let Some(effort @ Value::String(_)) = effort {
        template_kwargs.insert("reasoning_effort".to_owned(), effort.clone());
    }
    let sampling = generation.sampling(app)?;
    let repeated = Repeated {
        instructions,
        max_output_tokens,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        text: json!({"format": format.clone().unwrap_or_else(|| json!({"type": "text"}))}),
        tools: fields.get("tools", "a list of tools")?.unwrap_or_default(),
        tool_choice: fields
            .get("tool_choice", "a string or an object")?
            .unwrap_or_else(|| "auto".into()),
        parallel_tool_calls: tools.parallel,
        reasoning: json!({"effort": effort, "summary": null}),
        metadata: metadata.unwrap_or_default().into(),
    };
    let conversation = Conversation {
        messages,
        tools,
        generation,
        form: form(format, fields)?,
        logprobs: wants_logprobs(fields)?.then_some(top.unwrap_or(0)),
        template_kwargs,
        ..Conversation::default()
    };
    Ok((conversation, repeated))
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad("input", message)
}

fn wants_logprobs(fields: &Fields<'_>) -> Result<bool, ApiError> {
    let include: Option<Vec<String>> = fields.get("include", "a list of strings")?;
    let include = include.unwrap_or_default();
    Ok(include.iter().any(|i| i == "message.output_text.logprobs"))
}

/// From `text.format`, or `structured_outputs` as chat has them.
fn form(format: Option<Value>, fields: &Fields<'_>) -> Result<Option<Form>, ApiError> {
    let outputs = ConstraintFields {
        response_format: None,
        structured_outputs: fields.get("structured_outputs", "an object")?,
    };
    let format = format.map(|format| Form::of_chat("text.format", &chat_format(format)));
    match (format.transpose()?.flatten(), outputs.form()?) {
        (Some(_), Some(_)) => Err(ApiError::bad(
            "structured_outputs",
            "text.format and structured_outputs exclude each other",
        )),
        (format, outputs) => Ok(format.or(outputs)),
    }
}

/// Chat has the schema one level deeper.
fn chat_format(mut format: Value) -> Value {
    if format["type"] != "json_schema" {
        return format;
    }
    let mut take = |name: &str| format.get_mut(name).map_or(Value::Null, Value::take);
    let schema = json!({"name": take("name"), "schema": take("schema"), "strict": take("strict")});
    json!({"type": "json_schema", "json_schema": schema})
}

/// Tools in the form of chat, which has the function one level deeper.
fn tools(fields: &Fields<'_>) -> Result<Tools, ApiError> {
    Tools::parse_with(fields, |tool| match tool.get("function") {
        Some(_) => tool,
        None => json!({"type": tool["type"], "function": {
            "name": tool["name"], "description": tool["description"], "parameters": tool["parameters"],
        }}),
    })
}

fn add_input(messages: &mut Vec<Message>, fields: &Fields<'_>) -> Result<(), ApiError> {
    let input: Option<Value> = fields.get("input", "a string or a list of items")?;
    let items = match input {
        Some(Value::String(text)) => {
            messages.push(Message::new("user", text));
            return Ok(());
        }
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(Value::Array(_)) => return Err(bad("input must not be an empty list")),
        None => return Err(bad("input is missing")),
        Some(_) => return Err(bad("input must be a string or a list of items")),
    };
    for item in items {
        if !item.is_object() {
            return Err(bad("an item of input must be an object"));
        }
        match item["type"].as_str() {
            Some("message") | None => messages.push(message(&item)?),
            Some("function_call") => add_call(messages, &item)?,
            Some("function_call_output") => {
                let output = match &item["output"] {
                    Value::String(text) => text.clone(),
                    Value::Array(parts) => history::joined(parts)?,
                    _ => return Err(bad("a function_call_output must have an output")),
                };
                let mut result = Message::new("tool", output);
                let id = item["call_id"].clone();
                result.extra.insert("tool_call_id".to_owned(), id);
                messages.push(result);
            }
            // What a model thought before is left out of later turns.
            Some("reasoning") => {}
            Some(other) => {
                return Err(bad(format!(
                    "an item of input has the type {other:?}, which is not supported"
                )));
            }
        }
    }
    match messages.is_empty() {
        true => Err(bad("input has no message")),
        false => Ok(()),
    }
}

fn message(item: &Value) -> Result<Message, ApiError> {
    let role = match item["role"].as_str() {
        Some("developer") => "system",
        Some(role) if !role.is_empty() => role,
        _ => return Err(bad("a message must have a role")),
    };
    let text = match &item["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => history::joined(parts).map_err(|error| bad(error.to_string()))?,
        _ => {
            return Err(bad(
                "a message's content must be a string or a list of parts",
            ));
        }
    };
    Ok(Message::new(role, text))
}

/// Calls that follow one another belong to one message.
fn add_call(messages: &mut Vec<Message>, item: &Value) -> Result<(), ApiError> {
    let (Some(name), Some(arguments)) = (item["name"].as_str(), item["arguments"].as_str()) else {
        return Err(bad("a function_call must have a name and arguments"));
    };
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
    let function = json!({"name": name, "arguments": Value::clone(&arguments)});
    let call = json!({"id": item["call_id"], "type": "function", "function": function});
    let last = messages.last_mut().filter(|m| m.role == "assistant");
    match last.and_then(|last| last.extra.get_mut("tool_calls")?.as_array_mut()) {
        Some(calls) => calls.push(call),
        None => {
            let mut message = Message::new("assistant", "");
            message
                .extra
                .insert("tool_calls".to_owned(), vec![call].into());
            messages.push(message);
        }
    }
    Ok(())
}
