//! Owns the grammar of forced tool calls in each format.

use crate::limits::MAX_TOOLS;
use crate::{Limits, StructuredError, ToolCalls, ToolFormat, lark, schema};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;

impl ToolCalls {
    /// Spaces and line breaks as the families' templates show them to the model.
    pub(crate) fn lark(
        &self,
        limits: &Limits,
        specials: &HashMap<String, u32>,
    ) -> Result<String, StructuredError> {
        let count = self.tools.len();
        if count == 0 || count > MAX_TOOLS {
            let reason = format!("{count} tools, 1 to {MAX_TOOLS} are possible");
            return Err(StructuredError::invalid("tools", reason));
        }
        // A marker that is a special token cannot be spelled.
        let marker = |text: &str| match specials.get(text) {
            Some(id) => lark::token(*id),
            None => lark::literal(text),
        };
        let calls = |separator: &str| match self.parallel {
            true => format!("call ({} call)*", lark::literal(separator)),
            false => "call".to_owned(),
        };
        let (start, call) = match self.format {
            ToolFormat::Hermes => {
                let (open, close) = (marker("<tool_call>"), marker("</tool_call>"));
                (calls("\n"), format!(r#"{open} "\n" body "\n" {close}"#))
            }
            ToolFormat::Llama3Json => (calls("; "), "body".to_owned()),
            ToolFormat::Mistral => {
                let (open, calls) = (marker("[TOOL_CALLS]"), calls(", "));
                (format!(r#"{open} " "? "[" {calls} "]""#), "body".to_owned())
            }
            ToolFormat::GenericJson if self.parallel => {
                let list = format!(r#"call | "[" {} "]""#, calls(", "));
                (list, "body".to_owned())
            }
            ToolFormat::GenericJson => ("call".to_owned(), "body".to_owned()),
        };
        let arguments = match self.format {
            ToolFormat::Llama3Json => "parameters",
            _ => "arguments",
        };
        let mut grammar = format!("start: {start}\ncall: {call}\n");
        let bodies: Vec<String> = (0..self.tools.len()).map(|i| format!("tool_{i}")).collect();
        writeln!(grammar, "body: {}", bodies.join(" | ")).expect("a String");
        let mut budget = schema::Budget::new(limits);
        for (tool, body) in self.tools.iter().zip(&bodies) {
            let name = Value::from(tool.name.as_str());
            let head = lark::literal(&format!(r#"{{"name": {name}, "{arguments}": "#));
            let json = lark::json(&budget.prepare(&tool.parameters)?);
            writeln!(grammar, r#"{body}: {head} {json} "}}""#).expect("a String");
        }
        Ok(grammar)
    }
}
