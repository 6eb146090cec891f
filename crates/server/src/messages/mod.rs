//! Owns `/v1/messages` and `/v1/messages/count_tokens`: conversations in Anthropic's form.

mod events;
mod request;
mod response;

pub use request::MessagesRequest;
pub use response::MessageResponse;

use crate::app::App;
use crate::body::JsonBody;
use crate::chat::{Gathered, Replies};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::preparing::prepare;
use crate::request_id::RequestId;
use crate::sse;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use events::MessageEvents;
pub use response::MessageError;
use response::{blocks, stop_reason};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

pub async fn create(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    body: Result<JsonBody, ApiError>,
) -> Result<Response, MessageError> {
    let JsonBody(body) = body?;
    app.check_ready()?;
    let (stream, job) = prepare(&app, move |app| {
        let conversation = request::parse(&Fields::parse(&body)?, app)?;
        Ok((conversation.generation.stream, conversation.job(app)?))
    })
    .await?;
    let id = request_id.with_prefix("msg_", None);
    let model = app.model_name().to_owned();
    let replies = Replies::start(&app, &job)?;
    if stream {
        return Ok(sse::respond(async move |events| {
            MessageEvents::new(events).write(&id, &model, replies).await;
        }));
    }
    Ok(Json(whole(id, model, replies).await?).into_response())
}

async fn whole(
    id: String,
    model: String,
    mut replies: Replies,
) -> Result<MessageResponse, ApiError> {
    let mut gathered = Gathered::default();
    let mut end = None;
    while let Some(reply) = replies.next().await? {
        gathered.add(reply.said);
        end = reply.ending.or(end);
    }
    let (reason, stop_sequence) = stop_reason(end.expect("every answer ends"))?;
    Ok(MessageResponse {
        id,
        kind: "message",
        role: "assistant",
        model,
        content: blocks(gathered),
        stop_reason: Some(reason),
        stop_sequence,
        usage: replies.usage.into(),
    })
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TokenCount {
    pub input_tokens: usize,
}

pub async fn count_tokens(
    State(app): State<Arc<App>>,
    body: Result<JsonBody, ApiError>,
) -> Result<Json<TokenCount>, MessageError> {
    let JsonBody(body) = body?;
    let count = prepare(&app, move |app| {
        let conversation = request::parse_conversation(&Fields::parse(&body)?, app)?;
        Ok(conversation.prompt(app)?.len())
    });
    let input_tokens = count.await?;
    Ok(Json(TokenCount { input_tokens }))
}
