//! Owns getting the answers: submits the prompts a few at a time, reads each to its end, puts them in order.

use super::convert::PromptJob;
use super::logprobs::{LegacyBuilder, prompt_entry};
use super::types::{Choice, PromptTokensDetails, StopReason, Usage};
use crate::app::App;
use crate::error::ApiError;
use mettle_engine::{Answer, AnswerEnd, FinishReason, Piece, Request, RequestStream, StopCause};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Answers of one HTTP request that may be in the engine's queue at a time: one caller must not fill it.
const IN_FLIGHT: usize = 16;

/// All choices in order, and the tokens they took. Dropping the future aborts what is under way.
pub async fn answer_all(
    app: &Arc<App>,
    prompts: Vec<PromptJob>,
) -> Result<(Vec<Choice>, Usage), ApiError> {
    let mut jobs = Vec::new();
    for prompt in prompts.into_iter().map(Arc::new) {
        jobs.extend((0..prompt.answers).map(|number| (prompt.clone(), number)));
    }
    let mut waiting = jobs.into_iter().enumerate().peekable();
    let mut under_way = JoinSet::new();
    let mut done = Vec::new();
    loop {
        while under_way.len() < IN_FLIGHT
            && let Some((index, (job, number))) = waiting.peek()
        {
            let (index, job, number) = (*index, job.clone(), *number);
            match app.engine.submit(numbered(&job.request, number)) {
                Ok(stream) => under_way.spawn(answer(app.clone(), job, stream, index, number)),
                Err(error) if error.is_temporary() && !under_way.is_empty() => break,
                Err(error) => return Err(error.into()),
            };
            waiting.next();
        }
        let Some(answered) = under_way.join_next().await else {
            break;
        };
        let answered =
            answered.map_err(|_| ApiError::Internal("an answer could not be read".into()))?;
        done.push(answered?);
    }
    done.sort_by_key(|(choice, _)| choice.index);
    let mut usage = Usage::default();
    for (_, part) in &done {
        usage.prompt_tokens += part.prompt_tokens;
        usage.completion_tokens += part.completion_tokens;
        usage.prompt_tokens_details.cached_tokens += part.prompt_tokens_details.cached_tokens;
    }
    usage.total_tokens = usage.prompt_tokens + usage.completion_tokens;
    Ok((done.into_iter().map(|(choice, _)| choice).collect(), usage))
}

/// Several answers to one prompt differ although the caller gave one seed.
fn numbered(request: &Request, number: usize) -> Request {
    let mut request = request.clone();
    if let Some(seed) = &mut request.sampling.seed {
        *seed = seed.wrapping_add(number as u64);
    }
    request
}

async fn answer(
    app: Arc<App>,
    job: Arc<PromptJob>,
    stream: RequestStream,
    index: usize,
    number: usize,
) -> Result<(Choice, Usage), ApiError> {
    let mut answer = Answer::new(stream, app.tokenizer.clone(), job.options.clone());
    let mut pieces = Vec::new();
    while let Some(piece) = answer.next_piece_async().await {
        pieces.push(piece);
    }
    let end = answer.end().expect("no piece is left").clone();
    let (finish_reason, stop_reason) = ending(&end)?;
    let scored = answer.prompt_logprobs().unwrap_or_default();
    let mut text = job.echo.clone().unwrap_or_default();
    let logprobs = job.logprobs.map(|top| {
        let mut lists = LegacyBuilder::new(&app.tokenizer, top, false);
        if job.echo.is_some() {
            push_prompt(&mut lists, &app, &job, scored, &text);
        }
        lists.start_answer(text.chars().count(), job.options.skip_special);
        push_answer(&mut lists, &job, &pieces, &end);
        lists.finish()
    });
    text.extend(pieces.iter().map(|piece| piece.text.as_str()));
    let prompt_logprobs = job.prompt_logprobs.then(|| {
        let entry = |token: &Option<_>| token.as_ref().map(|t| prompt_entry(&app.tokenizer, t));
        scored.iter().map(entry).collect()
    });
    // A prompt counts once, however many answers it gets; what later ones found in the cache is the first one's work.
    let is_first = number == 0;
    let usage = Usage {
        prompt_tokens: if is_first { end.usage.prompt } else { 0 },
        completion_tokens: end.usage.completion,
        total_tokens: 0,
        prompt_tokens_details: PromptTokensDetails {
            cached_tokens: if is_first { end.usage.cached } else { 0 },
        },
    };
    let choice = Choice {
        index,
        text,
        logprobs,
        finish_reason,
        stop_reason,
        prompt_logprobs,
        prompt_token_ids: job.return_token_ids.then(|| job.request.prompt.clone()),
        token_ids: job.return_token_ids.then_some(end.tokens),
    };
    Ok((choice, usage))
}

fn push_prompt(
    lists: &mut LegacyBuilder,
    app: &App,
    job: &PromptJob,
    scored: &[Option<mettle_engine::TokenLogprobs>],
    text: &str,
) {
    let bos = app.tokenizer.bos();
    let bos_text = bos.map(|id| app.tokenizer.decode(&[id], false));
    let bos_is_written = bos_text.is_some_and(|bos| text.starts_with(&bos));
    for (position, id) in job.request.prompt.iter().enumerate() {
        let is_added = position == 0 && Some(*id) == bos && !bos_is_written;
        let logprobs = scored.get(position).and_then(Option::as_ref);
        lists.push(*id, logprobs, !is_added);
    }
}

fn push_answer(lists: &mut LegacyBuilder, job: &PromptJob, pieces: &[Piece], end: &AnswerEnd) {
    let by_token = matches!(
        &end.reason,
        FinishReason::Stop { by } if !matches!(by, StopCause::StopString(_))
    );
    for piece in pieces {
        let Some(id) = piece.token else { continue };
        let is_stop =
            by_token && job.request.stop_ids.contains(&id) | job.request.eos_ids.contains(&id);
        let is_shown = job.options.include_stop || !is_stop;
        lists.push(id, piece.logprobs.as_ref(), is_shown);
    }
}

fn ending(end: &AnswerEnd) -> Result<(&'static str, Option<StopReason>), ApiError> {
    Ok(match &end.reason {
        FinishReason::Length => ("length", None),
        FinishReason::Abort => ("abort", None),
        FinishReason::Stop { by } => match by {
            StopCause::Eos | StopCause::Constraint => ("stop", None),
            StopCause::StopId(id) => ("stop", Some(StopReason::Id(*id))),
            StopCause::StopString(text) => ("stop", Some(StopReason::Text(text.clone()))),
        },
        FinishReason::Deadline => {
            return Err(ApiError::Unavailable("the request took too long".into()));
        }
        FinishReason::Error(_) => return Err(ApiError::engine_failed()),
    })
}
