//! Owns `/v1/chat/completions`: messages in, the model's next message out, whole or as it comes.

mod conversation;
mod gathering;
pub mod history;
mod logprobs;
mod replies;
pub mod types;

pub use conversation::{ChatJob, Conversation};
pub use gathering::Gathered;
pub use logprobs::ScoredToken;
pub use replies::{Replies, Reply};

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
use logprobs::ChatLogprobs;
use std::sync::Arc;
use types::{ChatChoice, ChatChunk, ChatDelta, ChatMessage, ChatResponse, ChunkChoice};

pub async fn create(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    app.check_ready()?;
    let (generation, job) = prepare(&app, move |app| {
        let conversation = types::parse(&Fields::parse(&body)?, app)?;
        let job = conversation.job(app)?;
        Ok((conversation.generation, job))
    })
    .await?;
    let head = Head {
        id: request_id.with_prefix("chatcmpl-", generation.request_id.as_deref()),
        created: seconds_since_1970(),
        model: app.model_name().to_owned(),
    };
    let replies = Replies::start(&app, &job)?;
    if !generation.stream {
        let response = whole(&app, head, replies, job).await?;
        return Ok(Json(response).into_response());
    }
    let usage = generation.usage_in_stream();
    Ok(sse::respond(async move |events| {
        let outcome = chunks(&app, &events, &head, replies, job, usage).await;
        events.done(outcome).await;
    }))
}

/// What all chunks of a response share.
struct Head {
    id: String,
    created: u64,
    model: String,
}

async fn whole(
    app: &App,
    head: Head,
    mut replies: Replies,
    job: ChatJob,
) -> Result<ChatResponse, ApiError> {
    let request = &job.job.request;
    let mut choices = Vec::new();
    choices.resize_with(request.n, || {
        let choice = ChatChoice {
            logprobs: request.logprobs.map(|_| ChatLogprobs::default()),
            token_ids: job.return_token_ids.then(Vec::new),
            ..ChatChoice::default()
        };
        (choice, Gathered::default())
    });
    while let Some(reply) = replies.next().await? {
        let (choice, gathered) = &mut choices[reply.choice];
        gathered.add(reply.said);
        if let (Some(ids), Some(id)) = (&mut choice.token_ids, reply.token) {
            ids.push(id);
        }
        if let (Some(all), Some(logprobs)) = (&mut choice.logprobs, &reply.logprobs) {
            all.content.push(ScoredToken::new(&app.tokenizer, logprobs));
        }
        if let Some(ending) = reply.ending {
            choice.finish_reason = ending.finish_reason;
            choice.stop_reason = ending.stop_reason;
        }
    }
    let finished = |(index, (mut choice, gathered)): (usize, (ChatChoice, Gathered))| {
        choice.index = index;
        choice.message = message(gathered);
        choice
    };
    Ok(ChatResponse {
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model,
        choices: choices.into_iter().enumerate().map(finished).collect(),
        usage: replies.usage,
        prompt_logprobs: replies.prompt_logprobs.take(),
        prompt_token_ids: job.return_token_ids.then_some(job.job.request.prompt),
    })
}

fn message(gathered: Gathered) -> ChatMessage {
    let has_content = !gathered.content.is_empty() || gathered.calls.is_empty();
    let reasoning = (!gathered.reasoning.is_empty()).then_some(gathered.reasoning);
    ChatMessage {
        role: "assistant",
        content: has_content.then_some(gathered.content),
        refusal: None,
        reasoning: reasoning.clone(),
        reasoning_content: reasoning,
        tool_calls: gathered.calls,
    }
}

async fn chunks(
    app: &App,
    events: &Events,
    head: &Head,
    mut replies: Replies,
    job: ChatJob,
    (usage_at_end, usage_in_every): (bool, bool),
) -> Result<(), ApiError> {
    let mut is_first = true;
    let chunk = |choices, usage: Option<Usage>, prompt_token_ids| ChatChunk {
        id: head.id.clone(),
        object: "chat.completion.chunk",
        created: head.created,
        model: head.model.clone(),
        choices,
        usage,
        prompt_token_ids,
    };
    while let Some(reply) = replies.next().await? {
        let usage = usage_in_every.then_some(replies.usage);
        if std::mem::take(&mut is_first) {
            for index in 0..job.job.request.n {
                let prompt = job.return_token_ids && index == 0;
                let prompt = prompt.then(|| job.job.request.prompt.clone());
                let opening = chunk(vec![opening(index)], usage, prompt);
                events.data(&opening).await;
            }
        }
        if let Some(choice) = part(app, &job, reply) {
            events.data(&chunk(vec![choice], usage, None)).await;
        }
    }
    if usage_at_end {
        let last = chunk(Vec::new(), Some(replies.usage), None);
        events.data(&last).await;
    }
    Ok(())
}

/// The first chunk of a choice.
fn opening(index: usize) -> ChunkChoice {
    ChunkChoice {
        index,
        delta: ChatDelta {
            role: Some("assistant"),
            content: Some(String::new()),
            ..ChatDelta::default()
        },
        ..ChunkChoice::default()
    }
}

/// What a reply adds; `None` where a client would miss nothing.
fn part(app: &App, job: &ChatJob, reply: Reply) -> Option<ChunkChoice> {
    let has_token = reply.token.is_some() && (job.return_token_ids || reply.logprobs.is_some());
    if reply.said.is_empty() && reply.ending.is_none() && !has_token {
        return None;
    }
    let said = reply.said;
    let text = |text: String| (!text.is_empty()).then_some(text);
    let reasoning = text(said.reasoning);
    let (finish_reason, stop_reason) = match reply.ending {
        Some(ending) => (Some(ending.finish_reason), ending.stop_reason),
        None => (None, None),
    };
    Some(ChunkChoice {
        index: reply.choice,
        delta: ChatDelta {
            role: None,
            content: text(said.content),
            reasoning: reasoning.clone(),
            reasoning_content: reasoning,
            tool_calls: said.calls,
        },
        logprobs: reply.logprobs.map(|logprobs| ChatLogprobs {
            content: vec![ScoredToken::new(&app.tokenizer, &logprobs)],
            refusal: None,
        }),
        finish_reason,
        stop_reason,
        token_ids: reply
            .token
            .filter(|_| job.return_token_ids)
            .map(|id| vec![id]),
    })
}
