//! Owns the fields that bind an answer to a form, and the one place where such a form is compiled. What cannot be
//! compiled is refused, never ignored.

use crate::app::App;
use crate::error::ApiError;
use crate::fields::Fields;
use mettle_engine::TokenConstraint;
use mettle_structured::{Limits, Spec, StructuralTag, StructuredError};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// How an answer must look, in the two forms that clients write.
#[derive(Clone, Debug, Default, ToSchema)]
pub struct ConstraintFields {
    /// `{"type": "text" | "json_object" | "json_schema" | "structural_tag", ...}`
    #[schema(value_type = Option<Object>)]
    pub response_format: Option<Value>,
    /// One of `json`, `regex`, `choice`, `grammar`, `json_object`, `structural_tag`.
    #[schema(value_type = Option<Object>)]
    pub structured_outputs: Option<Value>,
}

/// Names of earlier versions of the same fields.
const OLD_NAMES: [&str; 4] = [
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
];

impl ConstraintFields {
    pub fn parse(fields: &Fields<'_>) -> Result<ConstraintFields, ApiError> {
        if let Some(name) = OLD_NAMES.into_iter().find(|n| fields.says_something(n)) {
            let message = format!("{name} is not supported: use structured_outputs");
            return Err(ApiError::bad(name, message));
        }
        Ok(ConstraintFields {
            response_format: fields.get("response_format", "an object with a type")?,
            structured_outputs: fields.get("structured_outputs", "an object")?,
        })
    }

    /// `None` where the answer is free.
    pub fn form(&self) -> Result<Option<Form>, ApiError> {
        let format = match &self.response_format {
            Some(format) => Form::of_chat("response_format", format)?,
            None => None,
        };
        let outputs = match &self.structured_outputs {
            Some(outputs) => outputs_spec(outputs)?,
            None => None,
        };
        match (format, outputs) {
            (Some(_), Some(_)) => Err(ApiError::bad(
                "structured_outputs",
                "response_format and structured_outputs exclude each other",
            )),
            (format, None) => Ok(format),
            (None, Some(spec)) => Ok(Some(Form::new("structured_outputs", spec))),
        }
    }
}

/// The form of an answer, and the field that asks for it.
#[derive(Clone, Debug)]
pub struct Form {
    param: &'static str,
    spec: Spec,
}

impl Form {
    pub fn new(param: &'static str, spec: Spec) -> Form {
        Form { param, spec }
    }

    /// What chat has as `response_format`; `None` where that is plain text.
    pub fn of_chat(param: &'static str, format: &Value) -> Result<Option<Form>, ApiError> {
        let spec = format_spec(param, format)?;
        Ok(spec.map(|spec| Form::new(param, spec)))
    }

    /// Reasoning before the answer is free.
    pub fn after_reasoning(self, opened: bool) -> Form {
        let answer = Box::new(self.spec);
        Form::new(self.param, Spec::AfterReasoning { answer, opened })
    }

    /// A constraint of its own for one request. Takes up to some seconds.
    pub fn compile(&self, app: &App) -> Result<Box<dyn TokenConstraint>, ApiError> {
        let refuse = |error| refusal(self.param, error);
        let compiler = app.grammars().map_err(refuse)?;
        let grammar = compiler.compile(&self.spec, &Limits::default());
        Ok(grammar.map_err(refuse)?.constraint())
    }
}

pub fn refusal(param: &str, error: StructuredError) -> ApiError {
    match error.is_callers_fault() {
        true => ApiError::bad(param, error.to_string()),
        false => ApiError::Unavailable(error.to_string()),
    }
}

fn format_spec(param: &str, format: &Value) -> Result<Option<Spec>, ApiError> {
    let bad = |message: &str| Err(ApiError::bad(param, format!("{param}{message}")));
    let Some(kind) = format["type"].as_str() else {
        return bad(" must be an object with a type");
    };
    match kind {
        "text" => Ok(None),
        "json_object" => Ok(Some(Spec::JsonObject)),
        "json_schema" => match &format["json_schema"]["schema"] {
            Value::Null => bad(" has the type json_schema and no schema"),
            schema => Ok(Some(Spec::JsonSchema(schema.clone()))),
        },
        "structural_tag" => {
            let tag = StructuralTag::from_json(format);
            let tag = tag.map_err(|error| refusal(param, error))?;
            Ok(Some(Spec::StructuralTag(tag)))
        }
        _ => bad(".type must be text, json_object, json_schema or structural_tag"),
    }
}

fn outputs_spec(outputs: &Value) -> Result<Option<Spec>, ApiError> {
    const NAME: &str = "structured_outputs";
    let bad = |message: String| Err(ApiError::bad(NAME, message));
    let Some(object) = outputs.as_object() else {
        return bad(format!("{NAME} must be an object"));
    };
    let given = given(object);
    let (name, value) = match given.as_slice() {
        [] => return Ok(None),
        [one] => *one,
        [(first, _), (second, _), ..] => {
            return bad(format!("{NAME} has {first} and {second}: it may have one"));
        }
    };
    let text = || match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(ApiError::bad(
            NAME,
            format!("{NAME}.{name} must be a string"),
        )),
    };
    let parsed = || match value {
        // Some clients write JSON inside a string.
        Value::String(text) => serde_json::from_str(text)
            .map_err(|_| ApiError::bad(NAME, format!("{NAME}.{name} is not JSON"))),
        value => Ok(value.clone()),
    };
    Ok(Some(match name {
        "json" => Spec::JsonSchema(parsed()?),
        "json_object" => Spec::JsonObject,
        "regex" => Spec::Regex(text()?),
        "grammar" => Spec::Grammar(text()?),
        "choice" => match serde_json::from_value(value.clone()) {
            Ok(choices) => Spec::Choice(choices),
            Err(_) => return bad(format!("{NAME}.choice must be a list of strings")),
        },
        _ => {
            let tag = StructuralTag::from_json(&parsed()?);
            Spec::StructuralTag(tag.map_err(|error| refusal(NAME, error))?)
        }
    }))
}

/// The forms that are named; `json_object: false` names none.
fn given(object: &Map<String, Value>) -> Vec<(&'static str, &Value)> {
    let kinds = [
        "json",
        "regex",
        "choice",
        "grammar",
        "json_object",
        "structural_tag",
    ];
    let said = |name: &'static str| Some((name, object.get(name)?));
    let is_said = |(_, value): &(&str, &Value)| !value.is_null() && **value != false;
    kinds.into_iter().filter_map(said).filter(is_said).collect()
}
