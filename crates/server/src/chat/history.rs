//! Owns the messages of a conversation as clients write them, and the form in which templates expect them.

use crate::error::ApiError;
use crate::fields::Fields;
use mettle_text::Message;
use serde_json::{Map, Value};

/// Reads `messages` in OpenAI's form.
pub fn parse(fields: &Fields<'_>) -> Result<Vec<Message>, ApiError> {
    let expected = "a list of messages, each with a role and a content";
    let messages: Option<Vec<Message>> = fields.get("messages", expected)?;
    let Some(messages) = messages else {
        return Err(bad("messages is missing"));
    };
    if messages.is_empty() {
        return Err(bad("messages must not be an empty list"));
    }
    messages.into_iter().map(plain).collect()
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad("messages", message)
}

/// A message with its text in one string and the arguments of its calls as objects: what templates are written for.
fn plain(mut message: Message) -> Result<Message, ApiError> {
    if message.role.is_empty() {
        return Err(bad("a message's role must not be empty"));
    }
    // The newer name of the same role, which few templates know.
    if message.role == "developer" {
        message.role = "system".to_owned();
    }
    message.content = match message.content {
        Value::Null => match message.role.as_str() {
            "assistant" => Value::String(String::new()),
            role => return Err(bad(format!("the content of a {role} message is missing"))),
        },
        text @ Value::String(_) => text,
        Value::Array(parts) => Value::String(joined(&parts)?),
        _ => return Err(bad("a content must be a string or a list of parts")),
    };
    if let Some(calls) = message.extra.get_mut("tool_calls") {
        open_arguments(calls)?;
        if calls.is_null() {
            message.extra.remove("tool_calls");
        }
    }
    Ok(message)
}

/// The text of content parts, one below the other.
pub fn joined(parts: &[Value]) -> Result<String, ApiError> {
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        let text = match part {
            Value::String(text) => Some(text.as_str()),
            Value::Object(part) => text_of(part)?,
            _ => return Err(bad("a content part must be an object with a type")),
        };
        texts.extend(text);
    }
    Ok(texts.join("\n"))
}

fn text_of(part: &Map<String, Value>) -> Result<Option<&str>, ApiError> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("");
    match kind {
        "text" | "input_text" | "output_text" => match part.get("text").and_then(Value::as_str) {
            Some(text) => Ok(Some(text)),
            None => Err(bad("a content part of type text must have a text")),
        },
        "refusal" => Ok(part.get("refusal").and_then(Value::as_str)),
        // What a model thought before is left out of later turns.
        "thinking" | "redacted_thinking" => Ok(None),
        "" => Err(bad("a content part must have a type")),
        other => Err(bad(format!(
            "a content part has the type {other:?}: this model takes text only"
        ))),
    }
}

/// Clients write arguments as JSON in a string; templates print objects.
fn open_arguments(calls: &mut Value) -> Result<(), ApiError> {
    if calls.is_null() {
        return Ok(());
    }
    let Some(calls) = calls.as_array_mut() else {
        return Err(bad("tool_calls must be a list"));
    };
    for call in calls {
        let arguments = call
            .get_mut("function")
            .and_then(|f| f.get_mut("arguments"));
        let Some(arguments) = arguments else {
            return Err(bad("a tool call must have a function with arguments"));
        };
        if let Value::String(text) = arguments {
            let text = match text.trim() {
                "" => "{}",
                text => text,
            };
            // Some models write arguments that are no JSON; what they wrote is shown to them as it was.
            if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
                *arguments = object;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(messages: &str, expected: Expect) {
        let body = format!(r#"{{"messages": {messages}}}"#);
        let fields = Fields::parse(body.as_bytes()).unwrap();
        expected.assert_eq(&match parse(&fields) {
            Ok(messages) => serde_json::to_string(&messages).unwrap(),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn parts_become_one_text_and_arguments_objects() {
        check(
            r#"[{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]"#,
            expect![[r#"[{"role":"system","content":"a\nb"}]"#]],
        );
        check(
            r#"[{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]"#,
            expect![[
                r#"[{"role":"assistant","content":"","tool_calls":[{"id":"1","function":{"name":"f","arguments":{"x":1}}}]}]"#
            ]],
        );
        check(
            r#"[{"role": "assistant", "content": "x", "tool_calls": null}]"#,
            expect![[r#"[{"role":"assistant","content":"x"}]"#]],
        );
    }

    #[test]
    fn what_is_no_message_is_refused() {
        check("[]", expect!["messages must not be an empty list"]);
        check("null", expect!["messages is missing"]);
        check(
            r#"[{"content": "x"}]"#,
            expect![[
                r#"messages must be a list of messages, each with a role and a content, found [{"content": "x"}]"#
            ]],
        );
        check(
            r#"[{"role": "user"}]"#,
            expect!["the content of a user message is missing"],
        );
        check(
            r#"[{"role": "user", "content": 7}]"#,
            expect!["a content must be a string or a list of parts"],
        );
        check(
            r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#,
            expect![[r#"a content part has the type "image_url": this model takes text only"#]],
        );
        check(
            r#"[{"role": "user", "content": [7]}]"#,
            expect!["a content part must be an object with a type"],
        );
        check(
            r#"[{"role": "assistant", "tool_calls": 7}]"#,
            expect!["tool_calls must be a list"],
        );
    }
}
