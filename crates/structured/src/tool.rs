//! Owns the tools of a request and what it says about calling them.

use crate::limits::MAX_TOOLS;
use crate::{StructuredError, ToolFormat};
use serde_json::{Value, json};

const WHAT: &str = "tools";

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    /// JSON schema of its arguments, which are an object.
    pub parameters: Value,
}

impl Tool {
    /// Reads OpenAI's list: `[{"type": "function", "function": {"name", "parameters"}}]`.
    pub fn list_from_json(tools: &[Value]) -> Result<Vec<Tool>, StructuredError> {
        if tools.is_empty() {
            return Err(StructuredError::invalid(WHAT, "the list is empty"));
        }
        if tools.len() > MAX_TOOLS {
            return Err(StructuredError::TooMany {
                what: WHAT,
                count: tools.len(),
                limit: MAX_TOOLS,
            });
        }
        let mut known: Vec<Tool> = Vec::with_capacity(tools.len());
        for (index, tool) in tools.iter().enumerate() {
            let tool = Tool::from_json(tool).map_err(|reason| {
                StructuredError::invalid(WHAT, format!("number {index}: {reason}"))
            })?;
            if known.iter().any(|other| other.name == tool.name) {
                let reason = format!("`{}` is there twice", tool.name);
                return Err(StructuredError::invalid(WHAT, reason));
            }
            known.push(tool);
        }
        Ok(known)
    }

    fn from_json(tool: &Value) -> Result<Tool, &'static str> {
        if tool.get("type").is_some_and(|kind| kind != "function") {
            return Err("only the type `function` is supported");
        }
        let function = tool.get("function").ok_or("`function` is missing")?;
        let name = function.get("name").and_then(Value::as_str);
        let name = name.ok_or("`function.name` has to be text")?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
        if name.is_empty() || name.len() > 128 || !name.chars().all(fits) {
            return Err("a function's name is 1 to 128 letters, digits, `_` or `-`");
        }
        let mut parameters = match function.get("parameters") {
            None | Some(Value::Null) => {
                json!({"type": "object", "properties": {}, "additionalProperties": false})
            }
            Some(parameters @ Value::Object(_)) => parameters.clone(),
            Some(_) => return Err("`function.parameters` has to be a JSON schema"),
        };
        match parameters.get("type") {
            None => parameters["type"] = "object".into(),
            Some(kind) if kind == "object" => {}
            Some(_) => return Err("`function.parameters` has to be of type object"),
        }
        Ok(Tool {
            name: name.to_owned(),
            parameters,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    None,
    /// The model decides; its text goes through a [`ToolParser`](crate::ToolParser).
    Auto,
    Required,
    Named(String),
}

impl ToolChoice {
    /// Reads OpenAI's `tool_choice`; a function that is named has to be one of `tools`.
    pub fn from_json(value: &Value, tools: &[Tool]) -> Result<ToolChoice, StructuredError> {
        let invalid = |reason: String| Err(StructuredError::invalid("tool_choice", reason));
        match value.as_str() {
            Some("none") => return Ok(ToolChoice::None),
            Some("auto") => return Ok(ToolChoice::Auto),
            Some("required") => return Ok(ToolChoice::Required),
            Some(_) => return invalid("it is none, auto, required or a function".to_owned()),
            None => {}
        }
        match value.pointer("/function/name").and_then(Value::as_str) {
            Some(name) if tools.iter().any(|tool| tool.name == name) => {
                Ok(ToolChoice::Named(name.to_owned()))
            }
            Some(name) => invalid(format!("`{name}` is none of the tools")),
            None => invalid("it is none, auto, required or a function".to_owned()),
        }
    }
}

/// Calls that the answer has to consist of.
#[derive(Clone, Debug)]
pub struct ToolCalls {
    pub format: ToolFormat,
    /// Those that may be called.
    pub tools: Vec<Tool>,
    /// More than one call in one answer.
    pub parallel: bool,
}

impl ToolCalls {
    /// What `choice` forces; `None` where it forces nothing.
    pub fn forced(
        format: ToolFormat,
        tools: &[Tool],
        choice: &ToolChoice,
        parallel: bool,
    ) -> Option<ToolCalls> {
        let (tools, parallel) = match choice {
            ToolChoice::None | ToolChoice::Auto => return None,
            ToolChoice::Required => (tools.to_vec(), parallel),
            // One function by name means one call of it.
            ToolChoice::Named(name) => {
                let named = tools.iter().filter(|tool| tool.name == *name);
                (named.cloned().collect(), false)
            }
        };
        Some(ToolCalls {
            format,
            tools,
            parallel,
        })
    }
}
