//! Owns `/v1/completions`: raw text or token ids in, the continuation out, whole or as it comes.

mod jobs;
mod logprobs;
mod prompt;
mod types;
mod writer;

pub use logprobs::{LOWEST, prompt_entry, text_of};
pub use prompt::Prompts;
pub use types::{CompletionRequest, CompletionResponse, PromptLogprobs, PromptLogprobsInJson};

use crate::answers::Answers;
use crate::app::{App, seconds_since_1970};
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::preparing::prepare;
use crate::request_id::RequestId;
use crate::sse::{self, Events};
use crate::usage::Usage;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use std::sync::Arc;
use types::CompletionChoice;
use writer::Writer;

pub async fn create(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    app.check_ready()?;
    let (request, jobs) = prepare(&app, move |app| {
        let request = CompletionRequest::parse(&Fields::parse(&body)?)?;
        request.validate(app)?;
        let jobs = request.jobs(app)?;
        Ok((request.generation, jobs))
    })
    .await?;
    let id = request_id.with_prefix("cmpl-", request.request_id.as_deref());
    let answers = Answers::start(&app, jobs.iter().map(|job| job.job.clone()))?;
    let writer = Writer::new(&app, jobs);
    let head = Head {
        id,
        created: seconds_since_1970(),
        model: app.model_name().to_owned(),
    };
    if !request.stream {
        return Ok(Json(whole(head, answers, writer).await?).into_response());
    }
    let (at_end, in_every) = request.usage_in_stream();
    Ok(sse::respond(async move |events| {
        let outcome = parts(&events, &head, answers, writer, at_end, in_every).await;
        events.done(outcome).await;
    }))
}

/// What all chunks of a response share.
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn response(&self, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> CompletionResponse {
        CompletionResponse {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.model.clone(),
            choices,
            usage,
        }
    }
}

async fn whole(
    head: Head,
    mut answers: Answers,
    mut writer: Writer,
) -> Result<CompletionResponse, ApiError> {
    let mut choices = Vec::new();
    choices.resize_with(writer.choices(), CompletionChoice::default);
    while let Some((prompt, event, answer)) = answers.next().await? {
        let part = writer.part(prompt, event, answer)?;
        let choice = &mut choices[part.index];
        choice.index = part.index;
        choice.append(part);
    }
    Ok(head.response(choices, Some(writer.usage)))
}

async fn parts(
    events: &Events,
    head: &Head,
    mut answers: Answers,
    mut writer: Writer,
    usage_at_end: bool,
    usage_in_every: bool,
) -> Result<(), ApiError> {
    while let Some((prompt, event, answer)) = answers.next().await? {
        let part = writer.part(prompt, event, answer)?;
        if !part.is_empty() {
            let usage = usage_in_every.then_some(writer.usage);
            events.data(&head.response(vec![part], usage)).await;
        }
    }
    if usage_at_end {
        let last = head.response(Vec::new(), Some(writer.usage));
        events.data(&last).await;
    }
    Ok(())
}
