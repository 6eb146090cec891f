//! Owns the output items of a response as they grow, and the events that tell of it. A whole response is what remains
//! when the events are left out.

use crate::reading::Said;
use crate::tools::ToolCallDelta;
use serde_json::{Value, json};

/// An event's name and what is in it besides its name and number.
pub type Named = (&'static str, Value);

pub struct Output {
    /// What ids of items end with.
    id: String,
    /// Items that are finished.
    pub items: Vec<Value>,
    open: Option<Open>,
    events: Vec<Named>,
}

enum Open {
    Reasoning {
        text: String,
    },
    Message {
        text: String,
        logprobs: Vec<Value>,
    },
    Call {
        index: usize,
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl Output {
    pub fn new(id: &str) -> Output {
        Output {
            id: id.to_owned(),
            items: Vec::new(),
            open: None,
            events: Vec::new(),
        }
    }

    /// Adds what was said; `logprobs` are those of its token.
    pub fn say(&mut self, said: Said, logprobs: Option<Value>) -> Vec<Named> {
        if !said.reasoning.is_empty() {
            self.think(said.reasoning);
        }
        if !said.content.is_empty() || logprobs.is_some() {
            self.write(said.content, logprobs);
        }
        said.calls.into_iter().for_each(|call| self.call(call));
        std::mem::take(&mut self.events)
    }

    /// Closes what is open. `status`: completed or incomplete. A response has at least one item.
    pub fn finish(&mut self, status: &str) -> Vec<Named> {
        if self.items.is_empty() && self.open.is_none() {
            self.open_message();
        }
        self.close(status);
        std::mem::take(&mut self.events)
    }

    fn item_id(&self, kind: &str) -> String {
        format!("{kind}_{}_{}", self.id, self.items.len())
    }

    fn place(&self, kind: &str) -> Value {
        json!({"item_id": self.item_id(kind), "output_index": self.items.len()})
    }

    fn tell(&mut self, name: &'static str, place: Value, more: Value) {
        let mut event = place;
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        self.events.push((name, event));
    }

    fn think(&mut self, text: String) {
        if !matches!(self.open, Some(Open::Reasoning { .. })) {
            self.close("completed");
            let item = json!({
                "id": self.item_id("rs"), "type": "reasoning", "summary": [], "content": [],
                "status": "in_progress",
            });
            self.add(item);
            self.open = Some(Open::Reasoning {
                text: String::new(),
            });
        }
        let place = self.place("rs");
        let more = json!({"content_index": 0, "delta": text});
        self.tell("response.reasoning_text.delta", place, more);
        if let Some(Open::Reasoning { text: all }) = &mut self.open {
            all.push_str(&text);
        }
    }

    fn write(&mut self, text: String, logprobs: Option<Value>) {
        if !matches!(self.open, Some(Open::Message { .. })) {
            self.close("completed");
            self.open_message();
        }
        let place = self.place("msg");
        let scored: Vec<Value> = logprobs.into_iter().collect();
        let more = json!({"content_index": 0, "delta": text, "logprobs": scored});
        self.tell("response.output_text.delta", place, more);
        if let Some(Open::Message {
            text: all,
            logprobs,
        }) = &mut self.open
        {
            all.push_str(&text);
            logprobs.extend(scored);
        }
    }

    fn open_message(&mut self) {
        let item = message(&self.item_id("msg"), "in_progress", &[]);
        self.add(item);
        let place = self.place("msg");
        let more = json!({"content_index": 0, "part": text_part("", &[])});
        self.tell("response.content_part.added", place, more);
        self.open = Some(Open::Message {
            text: String::new(),
            logprobs: Vec::new(),
        });
    }

    fn call(&mut self, delta: ToolCallDelta) {
        let is_open = matches!(&self.open, Some(Open::Call { index, .. }) if *index == delta.index);
        if !is_open {
            self.close("completed");
            let (call_id, name) = (
                delta.id.unwrap_or_default(),
                delta.function.name.unwrap_or_default(),
            );
            let item = call(&self.item_id("fc"), "in_progress", &call_id, &name, "");
            self.add(item);
            self.open = Some(Open::Call {
                index: delta.index,
                call_id,
                name,
                arguments: String::new(),
            });
        }
        let more = delta.function.arguments;
        if !more.is_empty() {
            let place = self.place("fc");
            self.tell(
                "response.function_call_arguments.delta",
                place,
                json!({ "delta": more }),
            );
            if let Some(Open::Call { arguments, .. }) = &mut self.open {
                arguments.push_str(&more);
            }
        }
    }

    fn add(&mut self, item: Value) {
        let place = json!({"output_index": self.items.len()});
        self.tell("response.output_item.added", place, json!({ "item": item }));
    }

    fn close(&mut self, status: &str) {
        let Some(open) = self.open.take() else { return };
        let item = match open {
            Open::Reasoning { text } => {
                let place = self.place("rs");
                let more = json!({"content_index": 0, "text": text});
                self.tell("response.reasoning_text.done", place, more);
                json!({
                    "id": self.item_id("rs"), "type": "reasoning", "summary": [],
                    "content": [{"type": "reasoning_text", "text": text}], "status": status,
                })
            }
            Open::Message { text, logprobs } => {
                let part = text_part(&text, &logprobs);
                let more = json!({"content_index": 0, "text": text, "logprobs": logprobs});
                let place = self.place("msg");
                self.tell("response.output_text.done", place, more);
                let place = self.place("msg");
                let more = json!({"content_index": 0, "part": part.clone()});
                self.tell("response.content_part.done", place, more);
                message(&self.item_id("msg"), status, &[part])
            }
            Open::Call {
                call_id,
                name,
                arguments,
                ..
            } => {
                let place = self.place("fc");
                let more = json!({"name": name, "arguments": arguments});
                self.tell("response.function_call_arguments.done", place, more);
                call(&self.item_id("fc"), status, &call_id, &name, &arguments)
            }
        };
        let place = json!({"output_index": self.items.len()});
        self.tell(
            "response.output_item.done",
            place,
            json!({ "item": item.clone() }),
        );
        self.items.push(item);
    }
}

fn message(id: &str, status: &str, content: &[Value]) -> Value {
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

fn text_part(text: &str, logprobs: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

fn call(id: &str, status: &str, call_id: &str, name: &str, arguments: &str) -> Value {
    json!({
        "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name,
        "arguments": arguments,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::FunctionDelta;

    fn said(content: &str, reasoning: &str, call: Option<ToolCallDelta>) -> Said {
        Said {
            content: content.to_owned(),
            reasoning: reasoning.to_owned(),
            calls: call.into_iter().collect(),
        }
    }

    #[test]
    fn items_open_and_close_in_order() {
        let mut output = Output::new("7");
        let begin = ToolCallDelta {
            index: 0,
            id: Some("call_1".into()),
            kind: Some("function"),
            function: FunctionDelta {
                name: Some("f".into()),
                arguments: "{".into(),
            },
        };
        let rest = ToolCallDelta {
            index: 0,
            function: FunctionDelta {
                name: None,
                arguments: "}".into(),
            },
            ..ToolCallDelta::default()
        };
        let mut events = output.say(said("", "hm", None), None);
        events.extend(output.say(said("a", "", None), None));
        events.extend(output.say(said("b", "", Some(begin)), None));
        events.extend(output.say(said("", "", Some(rest)), None));
        events.extend(output.finish("completed"));
        let names: Vec<_> = events
            .iter()
            .map(|(name, _)| name.trim_start_matches("response."))
            .collect();
        assert_eq!(
            names,
            [
                "output_item.added",
                "reasoning_text.delta",
                "reasoning_text.done",
                "output_item.done",
                "output_item.added",
                "content_part.added",
                "output_text.delta",
                "output_text.delta",
                "output_text.done",
                "content_part.done",
                "output_item.done",
                "output_item.added",
                "function_call_arguments.delta",
                "function_call_arguments.delta",
                "function_call_arguments.done",
                "output_item.done",
            ]
        );
        assert_eq!(output.items[1]["content"][0]["text"], "ab");
        assert_eq!(output.items[2]["arguments"], "{}");
        assert_eq!(output.items[2]["id"], "fc_7_2");
    }

    #[test]
    fn an_answer_without_text_is_an_empty_message() {
        let mut output = Output::new("7");
        assert_eq!(output.finish("incomplete").len(), 5);
        assert_eq!(output.items[0]["status"], "incomplete");
    }
}
