//! Owns what a request may ask of its answer's form, and its translation into a grammar.

use crate::limits::BRACKET_DEPTH;
use crate::reasoning::{CLOSE, OPEN};
use crate::{Limits, StructuralTag, StructuredError, ToolCalls, gbnf, lark, schema};
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};
use std::collections::HashMap;

#[derive(Clone, Debug)]
pub enum Spec {
    /// JSON that the schema describes. Keywords that cannot be enforced are errors.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// The whole answer matches, in the syntax of Rust's `regex` without look-around.
    Regex(String),
    /// The answer is one of these.
    Choice(Vec<String>),
    /// llguidance's Lark dialect, from the rule `start`, or GBNF, from the rule `root`.
    Grammar(String),
    StructuralTag(StructuralTag),
    /// One or more calls in the model family's own format.
    ToolCalls(ToolCalls),
    /// Free reasoning up to `</think>`, then the answer in its form. Without it, a form binds a reasoning model from
    /// its first token on.
    AfterReasoning {
        answer: Box<Spec>,
        /// The prompt ends in `<think>`. Otherwise the model may write it, or answer at once.
        opened: bool,
    },
}

impl Spec {
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Spec::JsonSchema(_) => schema::WHAT,
            Spec::JsonObject => "json_object",
            Spec::Regex(_) => "the regular expression",
            Spec::Choice(_) => "the list of choices",
            Spec::Grammar(_) => "the grammar",
            Spec::StructuralTag(_) => "the structural tag",
            Spec::ToolCalls(_) => "the tools' grammar",
            Spec::AfterReasoning { answer, .. } => answer.what(),
        }
    }

    /// `specials` are the special tokens by their text, for formats that are marked with them.
    pub(crate) fn grammar(
        &self,
        limits: &Limits,
        specials: &HashMap<String, u32>,
    ) -> Result<TopLevelGrammar, StructuredError> {
        let what = self.what();
        Ok(match self {
            Spec::JsonSchema(schema) => {
                TopLevelGrammar::from_json_schema(schema::Budget::new(limits).prepare(schema)?)
            }
            Spec::JsonObject => {
                let object = json!({"type": "object"});
                TopLevelGrammar::from_json_schema(schema::Budget::new(limits).prepare(&object)?)
            }
            Spec::Regex(regex) => {
                check_size(what, regex.len(), limits.regex_bytes)?;
                check_brackets(what, regex)?;
                if !trailing_backslashes(regex).is_multiple_of(2) {
                    // The library would drop it.
                    return Err(StructuredError::invalid(what, "it ends in a backslash"));
                }
                TopLevelGrammar::from_regex(without_anchors(regex))
            }
            Spec::Choice(choices) => TopLevelGrammar::from_lark(choice(what, choices, limits)?),
            Spec::Grammar(grammar) => {
                check_size(what, grammar.len(), limits.grammar_bytes)?;
                check_brackets(what, grammar)?;
                TopLevelGrammar::from_lark(match gbnf::is_gbnf(grammar) {
                    true => gbnf::to_lark(grammar)?,
                    false => grammar.clone(),
                })
            }
            Spec::StructuralTag(tag) => TopLevelGrammar::from_lark(tag.lark(limits)?),
            Spec::ToolCalls(calls) => TopLevelGrammar::from_lark(calls.lark(limits, specials)?),
            Spec::AfterReasoning { answer, opened } => {
                if matches!(**answer, Spec::AfterReasoning { .. }) {
                    return Err(StructuredError::invalid(what, "reasoning comes once"));
                }
                let mut inner = answer.grammar(limits, specials)?;
                let mut all = TopLevelGrammar::from_lark(reasoning(*opened, specials));
                for grammar in &mut inner.grammars {
                    grammar.name = Some(ANSWER.to_owned());
                }
                all.grammars.append(&mut inner.grammars);
                all
            }
        })
    }
}

/// The name by which the grammar of reasoning refers to that of the answer.
const ANSWER: &str = "answer";

fn reasoning(opened: bool, specials: &HashMap<String, u32>) -> String {
    let (open, rest) = match specials.get(CLOSE) {
        Some(id) => ("", format!("TEXT {}", lark::token(*id))),
        None => (
            &*format!("[suffix={}]", lark::literal(CLOSE)),
            "TEXT".to_owned(),
        ),
    };
    let start = match (opened, specials.get(OPEN)) {
        (true, _) => format!("thought GAP? @{ANSWER}"),
        (false, None) => format!("@{ANSWER} | {} thought GAP? @{ANSWER}", lark::literal(OPEN)),
        (false, Some(id)) => format!("@{ANSWER} | {} thought GAP? @{ANSWER}", lark::token(*id)),
    };
    format!("start: {start}\nthought{open}: {rest}\nTEXT: /(?s:.*)/\nGAP: /\\n{{1,2}}/\n")
}

fn choice(
    what: &'static str,
    choices: &[String],
    limits: &Limits,
) -> Result<String, StructuredError> {
    if choices.is_empty() {
        return Err(StructuredError::invalid(what, "it is empty"));
    }
    if choices.len() > limits.choices {
        return Err(StructuredError::TooMany {
            what,
            count: choices.len(),
            limit: limits.choices,
        });
    }
    let bytes = choices.iter().map(String::len).sum();
    check_size(what, bytes, limits.choice_bytes)?;
    // One terminal, so that their number costs the lexer something and the parser nothing. Empty terminals are none.
    let (empty, written): (Vec<&String>, Vec<&String>) = choices.iter().partition(|c| c.is_empty());
    let literals: Vec<String> = written.iter().map(|choice| lark::literal(choice)).collect();
    let choice = format!("CHOICE: {}", literals.join(" | "));
    Ok(match (empty.is_empty(), written.is_empty()) {
        (true, _) => format!("start: CHOICE\n{choice}"),
        (false, false) => format!("start: CHOICE | \"\"\n{choice}"),
        (false, true) => "start: \"\"".to_owned(),
    })
}

pub(crate) fn check_size(
    what: &'static str,
    size: usize,
    limit: usize,
) -> Result<(), StructuredError> {
    match size <= limit {
        true => Ok(()),
        false => Err(StructuredError::TooLarge { what, size, limit }),
    }
}

/// Counts brackets in literals too: nobody needs that many, and telling them apart would mean parsing.
fn check_brackets(what: &'static str, text: &str) -> Result<(), StructuredError> {
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > BRACKET_DEPTH {
            let limit = BRACKET_DEPTH;
            return Err(StructuredError::TooDeep { what, limit });
        }
    }
    Ok(())
}

/// The whole answer has to match anyway, so anchors at the ends say nothing; the library knows none.
fn without_anchors(regex: &str) -> &str {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    match regex.strip_suffix('$') {
        Some(inner) if trailing_backslashes(inner).is_multiple_of(2) => inner,
        _ => regex,
    }
}

fn trailing_backslashes(text: &str) -> usize {
    text.len() - text.trim_end_matches('\\').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_at_the_ends_are_taken_off() {
        for (regex, bare) in [
            ("^a$", "a"),
            ("^a|b$", "a|b"),
            ("a\\$", "a\\$"),
            ("a\\\\$", "a\\\\"),
            ("$", ""),
            ("a", "a"),
        ] {
            assert_eq!(without_anchors(regex), bare);
        }
    }
}
