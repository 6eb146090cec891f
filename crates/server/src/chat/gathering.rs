//! Owns what a choice has said so far: the sum of its replies, for responses that come in one piece.

use super::types::{FunctionCall, ToolCall};
use crate::reading::Said;
use crate::tools::ToolCallDelta;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    pub content: String,
    pub reasoning: String,
    pub calls: Vec<ToolCall>,
}

impl Gathered {
    pub fn add(&mut self, said: Said) {
        self.content.push_str(&said.content);
        self.reasoning.push_str(&said.reasoning);
        said.calls.into_iter().for_each(|call| self.add_call(call));
    }

    fn add_call(&mut self, delta: ToolCallDelta) {
        if self.calls.len() <= delta.index {
            self.calls.resize_with(delta.index + 1, || ToolCall {
                kind: "function",
                ..ToolCall::default()
            });
        }
        let call = &mut self.calls[delta.index];
        let FunctionCall { name, arguments } = &mut call.function;
        call.id.push_str(&delta.id.unwrap_or_default());
        name.push_str(&delta.function.name.unwrap_or_default());
        arguments.push_str(&delta.function.arguments);
    }
}
