//! Owns structural tags: free text in which certain beginnings open a piece of JSON.

use crate::spec::check_size;
use crate::{Limits, StructuredError, lark, schema};
use serde_json::Value;
use std::fmt::Write;

const WHAT: &str = "the structural tag";
const MOST: usize = 256;

/// Wherever one of `triggers` appears in the answer, one of the structures that begin with it has to follow.
#[derive(Clone, Debug, PartialEq)]
pub struct StructuralTag {
    pub triggers: Vec<String>,
    pub structures: Vec<TagStructure>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TagStructure {
    pub begin: String,
    pub schema: Value,
    pub end: String,
}

impl StructuralTag {
    /// Reads `{"structures": [{"begin", "schema", "end"}], "triggers": [..]}`, and the newer form
    /// `{"format": {"type": "triggered_tags", "tags": [{"begin", "content": {"type": "json_schema", ..}, "end"}], ..}}`.
    pub fn from_json(value: &Value) -> Result<StructuralTag, StructuredError> {
        let format = value.get("format").unwrap_or(value);
        let kind = format.get("type").and_then(Value::as_str);
        if value.get("format").is_some() && kind != Some("triggered_tags") {
            return Err(invalid("only the format `triggered_tags` is supported"));
        }
        for option in ["at_least_one", "stop_after_first"] {
            if format.get(option).and_then(Value::as_bool) == Some(true) {
                return Err(invalid(format!("`{option}` is not supported")));
            }
        }
        let list = |key: &str| format.get(key).and_then(Value::as_array);
        let triggers = list("triggers").ok_or_else(|| invalid("`triggers` has to be a list"))?;
        let structures = list("structures")
            .or_else(|| list("tags"))
            .ok_or_else(|| invalid("`structures` has to be a list"))?;
        Ok(StructuralTag {
            triggers: triggers
                .iter()
                .map(|trigger| text(Some(trigger), "triggers"))
                .collect::<Result<_, _>>()?,
            structures: structures
                .iter()
                .map(TagStructure::from_json)
                .collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn lark(&self, limits: &Limits) -> Result<String, StructuredError> {
        for (name, count) in [
            ("triggers", self.triggers.len()),
            ("structures", self.structures.len()),
        ] {
            if count == 0 || count > MOST {
                let reason = format!("it has {count} {name}, 1 to {MOST} are possible");
                return Err(invalid(reason));
            }
        }
        if self.triggers.iter().any(String::is_empty) {
            return Err(invalid("a trigger is empty"));
        }
        for (i, trigger) in self.triggers.iter().enumerate() {
            let others = self.triggers.iter().enumerate().filter(|(j, _)| i != *j);
            if let Some((_, other)) = others.clone().find(|(_, other)| other.contains(trigger)) {
                let reason = format!("the trigger `{trigger}` is part of the trigger `{other}`");
                return Err(invalid(reason));
            }
        }
        let ends = self.structures.iter().map(|s| s.begin.len() + s.end.len());
        let size = self.triggers.iter().map(String::len).chain(ends).sum();
        check_size(WHAT, size, limits.regex_bytes)?;
        let mut budget = schema::Budget::new(limits);
        let (mut sections, mut rules) = (Vec::new(), String::new());
        for (i, trigger) in self.triggers.iter().enumerate() {
            let tags: Vec<String> = (0..self.structures.len())
                .filter(|tag| self.structures[*tag].begin.starts_with(trigger))
                .map(|tag| format!("tag_{tag}"))
                .collect();
            if tags.is_empty() {
                return Err(invalid(format!("no structure begins with `{trigger}`")));
            }
            sections.push(format!("lead_{i} ({})", tags.join(" | ")));
            writeln!(rules, "lead_{i}[suffix={}]: TEXT", lark::literal(trigger)).expect("a String");
        }
        for (tag, structure) in self.structures.iter().enumerate() {
            let TagStructure { begin, schema, end } = structure;
            let Some(rest) = self
                .triggers
                .iter()
                .find_map(|t| begin.strip_prefix(t.as_str()))
            else {
                return Err(invalid(format!("`{begin}` begins with no trigger")));
            };
            let (rest, end) = (lark::literal(rest), lark::literal(end));
            let json = lark::json(&budget.prepare(schema)?);
            writeln!(rules, "tag_{tag}: {rest} {json} {end}").expect("a String");
        }
        // A lead is matched as soon as its trigger is complete, before either text can pass over it.
        Ok(format!(
            "start: section* LAST?\nsection: {}\n{rules}TEXT: /(?s:.*)/\nLAST: /(?s:.+)/\n",
            sections.join(" | ")
        ))
    }
}

impl TagStructure {
    fn from_json(value: &Value) -> Result<TagStructure, StructuredError> {
        let schema = match (value.get("schema"), value.get("content")) {
            (Some(schema), _) => schema,
            (None, Some(content)) if content["type"] == "json_schema" => &content["json_schema"],
            _ => return Err(invalid("each structure needs a `schema`")),
        };
        Ok(TagStructure {
            begin: text(value.get("begin"), "begin")?,
            schema: schema.clone(),
            end: text(value.get("end"), "end")?,
        })
    }
}

fn text(value: Option<&Value>, name: &str) -> Result<String, StructuredError> {
    let text = value.and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| invalid(format!("`{name}` has to be text")))
}

fn invalid(reason: impl Into<String>) -> StructuredError {
    StructuredError::invalid(WHAT, reason)
}
