//! Owns `/v1/embeddings`: texts or token ids in, a vector for each out.

mod base64;
mod request;
mod response;

pub use request::EmbeddingRequest;
pub use response::EmbeddingResponse;

use crate::answers::Answers;
use crate::app::{App, seconds_since_1970};
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::preparing::prepare;
use crate::request_id::RequestId;
use crate::usage::{Ending, Usage};
use axum::extract::State;
use axum::{Extension, Json};
use mettle_engine::AnswerEvent;
use response::Embedding;
use std::sync::Arc;

pub async fn create(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    JsonBody(body): JsonBody,
) -> Result<Json<EmbeddingResponse>, ApiError> {
    app.check_ready()?;
    let (request, jobs) = prepare(&app, move |app| {
        let request = EmbeddingRequest::parse(&Fields::parse(&body)?)?;
        let jobs = request.jobs(app)?;
        Ok((request, jobs))
    })
    .await?;
    let mut usage = Usage::default();
    for job in &jobs {
        usage.add_prompt(job.request.prompt.len());
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; jobs.len()];
    // Dropped with this future where the client is gone, which aborts what is under way.
    let mut answers = Answers::start(&app, jobs)?;
    while let Some((index, event, answer)) = answers.next().await? {
        if let AnswerEvent::End { choice } = event {
            let end = answer.end_of(choice).expect("it has just ended");
            Ending::of(end)?;
            usage.add_end(choice, end);
            vectors[index] = end.pooled.clone();
        }
    }
    let normalized = request.normalize.unwrap_or(app.options.normalize);
    let embedding = |(index, vector): (usize, Option<Vec<f32>>)| {
        // Without one it was aborted from inside: the server is going down.
        let vector = vector.ok_or_else(|| ApiError::Unavailable("the request was cut off".into()));
        Ok(Embedding::new(
            index,
            vector?,
            normalized,
            request.encoding_format,
        ))
    };
    let data = vectors.into_iter().enumerate().map(embedding);
    Ok(Json(EmbeddingResponse {
        id: request_id.with_prefix("embd-", request.request_id.as_deref()),
        object: "list",
        created: seconds_since_1970(),
        model: app.model_name().to_owned(),
        data: data.collect::<Result<_, ApiError>>()?,
        usage,
    }))
}
