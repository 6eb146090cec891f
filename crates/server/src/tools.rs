//! Owns the tools of a request: which there are, which may be called, and calls on the wire.

use crate::constraints::refusal;
use crate::error::ApiError;
use crate::fields::Fields;
use mettle_structured::{Spec, Tool, ToolCalls, ToolFormat};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Which tools the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    None,
    Auto,
    Required,
    Named(String),
}

/// The tools of a request, each as `{"type": "function", "function": {"name", "description", "parameters"}}`.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    pub definitions: Vec<Value>,
    pub choice: ToolChoice,
    /// Several calls in one answer are allowed.
    pub parallel: bool,
}

impl Tools {
    /// Reads `tools`, `tool_choice` and `parallel_tool_calls` in the form of chat.
    pub fn parse(fields: &Fields<'_>) -> Result<Tools, ApiError> {
        let tools = Tools::parse_with(fields, |tool| tool)?;
        let choice: Option<Value> = fields.get("tool_choice", "a string or an object")?;
        if tools.definitions.is_empty() && choice.is_some_and(|choice| choice != "none") {
            return Err(ApiError::bad("tool_choice", "tool_choice needs tools"));
        }
        if tools.definitions.is_empty() && fields.get::<Value>("tools", "a list")?.is_some() {
            return Err(ApiError::bad("tools", "tools must not be an empty list"));
        }
        Ok(tools)
    }

    /// The same where each tool is first brought into the form of chat.
    pub fn parse_with(
        fields: &Fields<'_>,
        to_chat: impl Fn(Value) -> Value,
    ) -> Result<Tools, ApiError> {
        let definitions: Option<Vec<Value>> = fields.get("tools", "a list of tools")?;
        let definitions = definitions.unwrap_or_default().into_iter();
        let definitions: Vec<Value> = definitions.map(to_chat).collect();
        let choice: Option<Value> = fields.get("tool_choice", "a string or an object")?;
        let choice = match &choice {
            None if definitions.is_empty() => ToolChoice::None,
            None => ToolChoice::Auto,
            // What a client says that always names a choice.
            Some(choice) if choice == "auto" && definitions.is_empty() => ToolChoice::None,
            Some(choice) => read_choice(choice)?,
        };
        let tools = Tools {
            definitions,
            choice,
            parallel: fields.flag("parallel_tool_calls", true)?,
        };
        tools.check()?;
        Ok(tools)
    }

    pub fn check(&self) -> Result<(), ApiError> {
        for tool in &self.definitions {
            check_definition(tool)?;
        }
        if self.definitions.is_empty() && self.choice != ToolChoice::None {
            return Err(ApiError::bad("tool_choice", "tool_choice needs tools"));
        }
        if let ToolChoice::Named(name) = &self.choice
            && !self.definitions.iter().any(|tool| name_of(tool) == name)
        {
            let message = format!("tool_choice names {name:?}, which is none of the tools");
            return Err(ApiError::bad("tool_choice", message));
        }
        Ok(())
    }

    /// The calls that an answer must consist of, where the choice leaves no other.
    pub fn forced(&self, format: ToolFormat) -> Result<Option<Spec>, ApiError> {
        let choice = match &self.choice {
            ToolChoice::None | ToolChoice::Auto => return Ok(None),
            ToolChoice::Required => mettle_structured::ToolChoice::Required,
            ToolChoice::Named(name) => mettle_structured::ToolChoice::Named(name.clone()),
        };
        let tools = Tool::list_from_json(&self.definitions);
        let tools = tools.map_err(|error| refusal("tools", error))?;
        let calls = ToolCalls::forced(format, &tools, &choice, self.parallel);
        Ok(calls.map(Spec::ToolCalls))
    }

    /// For models whose template knows no tools: what they are and how to call one.
    pub fn explained(&self) -> String {
        let functions = self
            .definitions
            .iter()
            .map(|tool| tool["function"].to_string());
        let functions: Vec<String> = functions.collect();
        format!(
            "You can call these functions:\n{}\nTo call one, answer with nothing but JSON of the form \
             {{\"name\": NAME, \"arguments\": {{...}}}}.",
            functions.join("\n")
        )
    }
}

pub(crate) fn name_of(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap_or("")
}

fn read_choice(choice: &Value) -> Result<ToolChoice, ApiError> {
    match choice.as_str() {
        Some("none") => return Ok(ToolChoice::None),
        Some("auto") => return Ok(ToolChoice::Auto),
        Some("required") => return Ok(ToolChoice::Required),
        _ => {}
    }
    // Chat has the name inside `function`, Responses beside `type`.
    let name = choice["function"]["name"].as_str();
    let name = name.or_else(|| choice["name"].as_str());
    match name.filter(|_| choice["type"] == "function") {
        Some(name) => Ok(ToolChoice::Named(name.to_owned())),
        None => Err(ApiError::bad(
            "tool_choice",
            "tool_choice must be none, auto, required or {\"type\": \"function\", \"function\": {\"name\": ...}}",
        )),
    }
}

fn check_definition(tool: &Value) -> Result<(), ApiError> {
    let refuse = |message: &str| Err(ApiError::bad("tools", message));
    if tool["type"] != "function" {
        return refuse("a tool must have the type function");
    }
    let function = &tool["function"];
    let name = function["name"].as_str().unwrap_or("");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !(1..=128).contains(&name.len()) || !name.chars().all(is_plain) {
        return refuse(
            "a tool's function must have a name of up to 128 letters, digits, dots, - and _",
        );
    }
    let description = &function["description"];
    if !description.is_null() && !description.is_string() {
        return refuse("a tool's description must be a string");
    }
    let parameters = &function["parameters"];
    if !parameters.is_null() && !parameters.is_object() {
        return refuse("a tool's parameters must be a JSON schema, which is an object");
    }
    Ok(())
}

/// The beginning of a call (with id and name), or more of its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolCallDelta {
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: FunctionDelta,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub arguments: String,
}
