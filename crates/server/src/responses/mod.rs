//! Owns `/v1/responses`: conversations in the form of OpenAI's Responses API. Nothing is kept between requests.

mod output;
mod request;

pub use request::ResponsesRequest;

use crate::app::{App, seconds_since_1970};
use crate::body::JsonBody;
use crate::chat::{Replies, Reply, ScoredToken};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::preparing::prepare;
use crate::request_id::RequestId;
use crate::sse::{self, Events};
use crate::usage::{Ending, Usage};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use output::{Named, Output};
use request::Repeated;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// A response, finished or not.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ResponseObject {
    pub id: String,
    pub object: &'static str,
    pub created_at: u64,
    pub model: String,
    /// in_progress, completed, incomplete or failed.
    pub status: &'static str,
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub incomplete_details: Option<Value>,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<usize>,
    #[schema(value_type = Vec<Object>)]
    pub output: Vec<Value>,
    pub parallel_tool_calls: bool,
    pub previous_response_id: Option<String>,
    #[schema(value_type = Object)]
    pub reasoning: Value,
    pub store: bool,
    pub temperature: f32,
    pub top_p: f32,
    #[schema(value_type = Object)]
    pub text: Value,
    #[schema(value_type = Value)]
    pub tool_choice: Value,
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    pub truncation: &'static str,
    #[schema(value_type = Object)]
    pub metadata: Value,
    #[schema(value_type = Option<Object>)]
    pub usage: Option<Value>,
}

impl ResponseObject {
    fn new(id: String, model: &str, repeated: Repeated) -> ResponseObject {
        ResponseObject {
            id,
            object: "response",
            created_at: seconds_since_1970(),
            model: model.to_owned(),
            status: "in_progress",
            error: None,
            incomplete_details: None,
            instructions: repeated.instructions,
            max_output_tokens: repeated.max_output_tokens,
            output: Vec::new(),
            parallel_tool_calls: repeated.parallel_tool_calls,
            previous_response_id: None,
            reasoning: repeated.reasoning,
            store: false,
            temperature: repeated.temperature,
            top_p: repeated.top_p,
            text: repeated.text,
            tool_choice: repeated.tool_choice,
            tools: repeated.tools,
            truncation: "disabled",
            metadata: repeated.metadata,
            usage: None,
        }
    }

    fn finish(&mut self, ending: &Ending, output: &mut Output, usage: Usage) -> Vec<Named> {
        let reason = match ending.finish_reason {
            "length" => Some("max_output_tokens"),
            "abort" => Some("aborted"),
            _ => None,
        };
        self.status = match reason {
            Some(_) => "incomplete",
            None => "completed",
        };
        self.incomplete_details = reason.map(|reason| json!({ "reason": reason }));
        let events = output.finish(self.status);
        self.output = std::mem::take(&mut output.items);
        self.usage = Some(json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.prompt_tokens_details.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens()},
            "total_tokens": usage.total_tokens,
        }));
        events
    }
}

pub async fn create(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    app.check_ready()?;
    let (stream, repeated, job) = prepare(&app, move |app| {
        let (conversation, repeated) = request::parse(&Fields::parse(&body)?, app)?;
        let stream = conversation.generation.stream;
        Ok((stream, repeated, conversation.job(app)?))
    })
    .await?;
    let id = request_id.with_prefix("", None);
    let output = Output::new(&id);
    let response = ResponseObject::new(format!("resp_{id}"), app.model_name(), repeated);
    let replies = Replies::start(&app, &job)?;
    if stream {
        return Ok(sse::respond(async move |events| {
            let events = Numbered { events, count: 0 };
            events.write(&app, response, output, replies).await;
        }));
    }
    let response = whole(&app, response, output, replies).await?;
    Ok(Json(response).into_response())
}

async fn whole(
    app: &App,
    mut response: ResponseObject,
    mut output: Output,
    mut replies: Replies,
) -> Result<ResponseObject, ApiError> {
    while let Some(reply) = replies.next().await? {
        let (scored, ending) = (scored(app, &reply), reply.ending);
        output.say(reply.said, scored);
        if let Some(ending) = ending {
            response.finish(&ending, &mut output, replies.usage);
        }
    }
    Ok(response)
}

fn scored(app: &App, reply: &Reply) -> Option<Value> {
    let scored = ScoredToken::new(&app.tokenizer, reply.logprobs.as_ref()?);
    serde_json::to_value(scored).ok()
}

/// Events that carry their number.
struct Numbered {
    events: Events,
    count: usize,
}

impl Numbered {
    /// The whole stream, an error at its end included.
    async fn write(
        mut self,
        app: &App,
        mut response: ResponseObject,
        mut output: Output,
        replies: Replies,
    ) {
        for name in ["response.created", "response.in_progress"] {
            self.tell((name, json!({ "response": response }))).await;
        }
        let outcome = self
            .write_replies(app, &mut response, &mut output, replies)
            .await;
        if let Err(error) = outcome {
            let details = error.body().error;
            response.status = "failed";
            response.error = Some(json!({"code": "server_error", "message": details.message}));
            self.tell(("response.failed", json!({ "response": response })))
                .await;
        }
    }

    async fn write_replies(
        &mut self,
        app: &App,
        response: &mut ResponseObject,
        output: &mut Output,
        mut replies: Replies,
    ) -> Result<(), ApiError> {
        while let Some(reply) = replies.next().await? {
            let (scored, ending) = (scored(app, &reply), reply.ending);
            let mut events = output.say(reply.said, scored);
            if let Some(ending) = ending {
                events.extend(response.finish(&ending, output, replies.usage));
                let name = match response.status {
                    "completed" => "response.completed",
                    _ => "response.incomplete",
                };
                events.push((name, json!({ "response": response })));
            }
            for event in events {
                self.tell(event).await;
            }
        }
        Ok(())
    }

    async fn tell(&mut self, (name, fields): Named) {
        let mut event = json!({"type": name, "sequence_number": self.count});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.count += 1;
        self.events.named(name, &event).await;
    }
}
