//! Owns reading of the two request fields that ask for a form: `response_format` and `structured_outputs`.

use crate::{Spec, StructuralTag, StructuredError};
use serde_json::Value;

impl Spec {
    /// Reads OpenAI's `response_format`; `None` where the answer is free.
    pub fn from_response_format(value: &Value) -> Result<Option<Spec>, StructuredError> {
        let invalid = |reason: String| StructuredError::invalid("response_format", reason);
        match value.get("type").and_then(Value::as_str) {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(Spec::JsonObject)),
            Some("json_schema") => {
                let schema = value.pointer("/json_schema/schema");
                let schema =
                    schema.ok_or_else(|| invalid("`json_schema.schema` is missing".to_owned()))?;
                Ok(Some(Spec::JsonSchema(schema.clone())))
            }
            Some("structural_tag") => {
                Ok(Some(Spec::StructuralTag(StructuralTag::from_json(value)?)))
            }
            Some(other) => Err(invalid(format!("the type `{other}` is unknown"))),
            None => Err(invalid("`type` is missing".to_owned())),
        }
    }

    /// Reads vLLM's `structured_outputs`, in which exactly one form is named; `None` where none is.
    pub fn from_structured_outputs(value: &Value) -> Result<Option<Spec>, StructuredError> {
        const FORMS: [&str; 6] = [
            "json",
            "json_object",
            "regex",
            "choice",
            "grammar",
            "structural_tag",
        ];
        let invalid = |reason: String| StructuredError::invalid("structured_outputs", reason);
        let fields = value.as_object();
        let fields = fields.ok_or_else(|| invalid("it has to be an object".to_owned()))?;
        let said = |field: &Value| !field.is_null() && field != &Value::Bool(false);
        let named: Vec<(&str, &Value)> = FORMS
            .into_iter()
            .filter_map(|form| Some((form, fields.get(form).filter(|field| said(field))?)))
            .collect();
        let (form, field) = match named[..] {
            [] => return Ok(None),
            [one] => one,
            [(first, _), (second, _), ..] => {
                return Err(invalid(format!(
                    "`{first}` and `{second}` exclude each other"
                )));
            }
        };
        let text = || {
            let text = field.as_str().map(str::to_owned);
            text.ok_or_else(|| invalid(format!("`{form}` has to be text")))
        };
        // Clients send these as objects or as text that holds one.
        let json = || match field {
            Value::String(text) => serde_json::from_str(text)
                .map_err(|error| invalid(format!("`{form}` is not JSON: {error}"))),
            other => Ok(other.clone()),
        };
        Ok(Some(match form {
            "json" => Spec::JsonSchema(json()?),
            "json_object" => Spec::JsonObject,
            "regex" => Spec::Regex(text()?),
            "grammar" => Spec::Grammar(text()?),
            "structural_tag" => Spec::StructuralTag(StructuralTag::from_json(&json()?)?),
            _ => {
                let choices = field.as_array().and_then(|choices| {
                    let text = |choice: &Value| choice.as_str().map(str::to_owned);
                    choices.iter().map(text).collect()
                });
                Spec::Choice(
                    choices
                        .ok_or_else(|| invalid("`choice` has to be a list of texts".to_owned()))?,
                )
            }
        }))
    }
}
