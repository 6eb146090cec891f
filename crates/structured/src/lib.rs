//! Owns what shapes an answer: grammars over tokens, and tool calls and reasoning found in a model's text.
//!
//! [`GrammarCompiler`] turns a [`Spec`] into a [`Grammar`], which makes the engine's constraint of each choice.
//! [`ToolParser`] and [`ReasoningSplitter`] read streamed text; any split of the text gives the same result.

mod call_body;
mod compiler;
mod constraint;
mod error;
mod gbnf;
mod lark;
mod limits;
mod marker;
mod reasoning;
mod schema;
mod spec;
mod spec_json;
mod structural_tag;
mod token_trie;
mod tool;
mod tool_format;
mod tool_grammar;
mod tool_parser;

pub use compiler::GrammarCompiler;
pub use constraint::Grammar;
pub use error::StructuredError;
pub use limits::Limits;
pub use reasoning::{ReasoningEvent, ReasoningFormat, ReasoningSplitter};
pub use spec::Spec;
pub use structural_tag::{StructuralTag, TagStructure};
pub use tool::{Tool, ToolCalls, ToolChoice};
pub use tool_format::ToolFormat;
pub use tool_parser::{ParserEvent, ToolParser};
