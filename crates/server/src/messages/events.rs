//! Owns the named events of a streamed message: which block is open, and what opens and closes it.

use super::response::{MessageError, MessageUsage, stop_reason};
use crate::chat::Replies;
use crate::error::ApiError;
use crate::reading::Said;
use crate::sse::Events;
use crate::tools::ToolCallDelta;
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Thinking,
    Text,
    Call(usize),
}

pub struct MessageEvents {
    events: Events,
    open: Option<Open>,
    /// Blocks that were opened.
    blocks: usize,
}

impl MessageEvents {
    pub fn new(events: Events) -> MessageEvents {
        MessageEvents {
            events,
            open: None,
            blocks: 0,
        }
    }

    /// The whole stream, an error at its end included.
    pub async fn write(mut self, id: &str, model: &str, replies: Replies) {
        let usage = MessageUsage::from(replies.usage);
        let message = json!({
            "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage,
        });
        self.event("message_start", json!({ "message": message }))
            .await;
        self.event("ping", json!({})).await;
        if let Err(error) = self.write_replies(replies).await {
            let body = MessageError(error).body();
            self.events.named("error", &body).await;
        }
    }

    async fn write_replies(&mut self, mut replies: Replies) -> Result<(), ApiError> {
        while let Some(reply) = replies.next().await? {
            self.say(reply.said).await;
            let Some(ending) = reply.ending else { continue };
            self.close().await;
            let (reason, sequence) = stop_reason(ending)?;
            let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
            let usage = MessageUsage::from(replies.usage);
            self.event("message_delta", json!({"delta": delta, "usage": usage}))
                .await;
        }
        self.event("message_stop", json!({})).await;
        Ok(())
    }

    async fn say(&mut self, said: Said) {
        if !said.reasoning.is_empty() {
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            self.open(Open::Thinking, block).await;
            let delta = json!({"type": "thinking_delta", "thinking": said.reasoning});
            self.delta(delta).await;
        }
        if !said.content.is_empty() {
            let block = json!({"type": "text", "text": ""});
            self.open(Open::Text, block).await;
            self.delta(json!({"type": "text_delta", "text": said.content}))
                .await;
        }
        for call in said.calls {
            self.call(call).await;
        }
    }

    async fn call(&mut self, call: ToolCallDelta) {
        let name = call.function.name.unwrap_or_default();
        let block = json!({"type": "tool_use", "id": call.id, "name": name, "input": {}});
        self.open(Open::Call(call.index), block).await;
        if !call.function.arguments.is_empty() {
            let json = call.function.arguments;
            self.delta(json!({"type": "input_json_delta", "partial_json": json}))
                .await;
        }
    }

    /// Opens a block unless it is the open one.
    async fn open(&mut self, what: Open, block: Value) {
        if self.open == Some(what) {
            return;
        }
        self.close().await;
        let index = self.blocks;
        self.event(
            "content_block_start",
            json!({"index": index, "content_block": block}),
        )
        .await;
        self.open = Some(what);
        self.blocks += 1;
    }

    async fn close(&mut self) {
        if self.open.take().is_some() {
            let index = self.blocks - 1;
            self.event("content_block_stop", json!({ "index": index }))
                .await;
        }
    }

    async fn delta(&mut self, delta: Value) {
        let index = self.blocks - 1;
        self.event(
            "content_block_delta",
            json!({"index": index, "delta": delta}),
        )
        .await;
    }

    /// Every event says its name inside, too.
    async fn event(&self, name: &str, fields: Value) {
        let mut event = json!({ "type": name });
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.events.named(name, &event).await;
    }
}
