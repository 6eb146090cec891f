//! Owns one accepted request: its tokens, what it made so far, and the events it sends.

use crate::error::EngineError;
use crate::event::{Event, FinishReason, Finished, StopCause, Timings, TokenLogprobs, Usage};
use crate::pager::SequenceId;
use crate::request::Request;
use crate::sampler::{Draw, Penalties, Sampler, logprobs_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::mpsc::Sender;

/// A request on its way to the worker or waiting there.
#[derive(Debug)]
pub(crate) struct Submission {
    pub request: Request,
    pub seed: u64,
    pub events: Sender<Event>,
    pub abort: Arc<AtomicBool>,
    pub submitted: Instant,
}

impl Submission {
    /// Nobody listens any more, or who does asked to stop.
    pub fn is_aborted(&self) -> bool {
        self.events.is_closed() || self.abort.load(Ordering::Relaxed)
    }

    /// Ends a request that never ran.
    pub fn end(self, reason: FinishReason) {
        let finished = Finished {
            reason,
            usage: Usage {
                prompt: self.request.prompt.len(),
                ..Usage::default()
            },
            timings: Timings {
                queue: self.submitted.elapsed(),
                ..Timings::default()
            },
        };
        send(&self.events, Event::Finished(finished));
    }
}

/// The channel has room for every event a request may send, so only a dropped stream refuses one: nobody is left to tell.
fn send(events: &Sender<Event>, event: Event) {
    let _ = events.try_send(event);
}

/// A request with a sequence in the pager.
#[derive(Debug)]
pub(crate) struct Running {
    pub submission: Submission,
    pub sequence: SequenceId,
    /// Prompt and output.
    pub tokens: Vec<u32>,
    /// Pages it may hold at the most, which admission set aside for it.
    pub pages: usize,
    prompt_len: usize,
    cached: usize,
    penalties: Option<Penalties>,
    prompt_logprobs: Vec<Option<TokenLogprobs>>,
    admitted: Instant,
    /// When the prompt was computed and the first token made.
    prefilled: Option<Instant>,
    /// Set once the request is over; it leaves after the step.
    pub finish: Option<FinishReason>,
}

impl Running {
    pub fn new(
        mut submission: Submission,
        sequence: SequenceId,
        cached: usize,
        pages: usize,
        vocabulary: usize,
    ) -> Running {
        let request = &mut submission.request;
        let mut tokens = std::mem::take(&mut request.prompt);
        tokens.reserve_exact(request.max_tokens);
        let prompt_logprobs = match request.prompt_logprobs {
            Some(_) => Vec::with_capacity(tokens.len()),
            None => Vec::new(),
        };
        let max_tokens = request.max_tokens;
        Running {
            penalties: Penalties::new(&request.sampling, &tokens, max_tokens, vocabulary),
            prompt_len: tokens.len(),
            submission,
            sequence,
            tokens,
            pages,
            cached,
            prompt_logprobs,
            admitted: Instant::now(),
            prefilled: None,
            finish: None,
        }
    }

    pub fn is_aborted(&self) -> bool {
        self.submission.is_aborted()
    }

    fn made(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Whether the logits at this position are wanted: of the prompt's all but the last where its log-probabilities were
    /// asked for, and those of the last token where another one is to be made.
    pub fn wants_logits(&self, position: usize) -> bool {
        let request = &self.submission.request;
        let is_last = position + 1 == self.tokens.len();
        let scores_prompt = request.prompt_logprobs.is_some() && position + 1 < self.prompt_len;
        scores_prompt || (is_last && request.max_tokens > 0)
    }

    /// Takes what a step computed at `positions`: the wanted logits, in order, score the prompt or make a token.
    pub fn take_step<'a>(
        &mut self,
        positions: std::ops::Range<usize>,
        mut rows: impl Iterator<Item = &'a [f32]>,
        sampler: &mut Sampler,
    ) -> Result<(), EngineError> {
        let end = positions.end;
        for position in positions {
            let following = position + 1;
            if following == self.prompt_len {
                self.finish_prompt();
            }
            if self.wants_logits(position) {
                let logits = rows.next().expect("the step has a row for each");
                match following < self.prompt_len {
                    true => self.score_prompt(following, logits)?,
                    false => self.make_token(logits, sampler)?,
                }
            }
        }
        if end >= self.prompt_len && self.prefilled.is_none() {
            self.prefilled = Some(Instant::now());
        }
        Ok(())
    }

    /// Sends the prompt's log-probabilities; a request that wanted nothing else is over.
    fn finish_prompt(&mut self) {
        let request = &self.submission.request;
        if request.prompt_logprobs.is_none() {
            return;
        }
        if request.max_tokens == 0 {
            self.finish = Some(FinishReason::Length);
        }
        if self.prompt_logprobs.is_empty() {
            // A prompt of one token: nothing was scored.
            self.prompt_logprobs.push(None);
        }
        let scored = std::mem::take(&mut self.prompt_logprobs);
        send(&self.submission.events, Event::PromptLogprobs(scored));
    }

    fn score_prompt(&mut self, following: usize, logits: &[f32]) -> Result<(), EngineError> {
        let top = self.submission.request.prompt_logprobs.unwrap_or(0);
        let scored = logprobs_of(logits, self.tokens[following], top, following as u64)?;
        if self.prompt_logprobs.is_empty() {
            self.prompt_logprobs.push(None);
        }
        self.prompt_logprobs.push(Some(scored));
        Ok(())
    }

    fn make_token(&mut self, logits: &[f32], sampler: &mut Sampler) -> Result<(), EngineError> {
        let request = &self.submission.request;
        let banned: [&[u32]; 2] = match self.made() < request.min_tokens {
            true => [&request.eos_ids, &request.stop_ids],
            false => [&[], &[]],
        };
        let draw = Draw {
            params: &request.sampling,
            seed: self.submission.seed,
            position: self.tokens.len() as u64,
            penalties: self.penalties.as_ref(),
            banned,
            logprobs: request.logprobs,
        };
        let (id, logprobs) = sampler.sample(logits, &draw)?;
        self.tokens.push(id);
        if let Some(penalties) = &mut self.penalties {
            penalties.add(id);
        }
        let stop = self.stop_cause(id);
        let event = Event::Token {
            id,
            logprobs,
            is_stop: stop.is_some(),
        };
        send(&self.submission.events, event);
        self.finish = match stop {
            Some(by) => Some(FinishReason::Stop { by }),
            None if self.made() == self.submission.request.max_tokens => Some(FinishReason::Length),
            None => None,
        };
        Ok(())
    }

    fn stop_cause(&self, id: u32) -> Option<StopCause> {
        let request = &self.submission.request;
        if !request.ignore_eos && request.eos_ids.contains(&id) {
            return Some(StopCause::Eos);
        }
        request
            .stop_ids
            .contains(&id)
            .then_some(StopCause::StopId(id))
    }

    /// Sends the terminal event. The sequence must have been freed.
    pub fn end(self, reason: FinishReason) {
        let now = Instant::now();
        let prefilled = self.prefilled.unwrap_or(now);
        let finished = Finished {
            reason,
            usage: Usage {
                prompt: self.prompt_len,
                completion: self.made(),
                cached: self.cached,
            },
            timings: Timings {
                queue: self.admitted - self.submission.submitted,
                prefill: prefilled - self.admitted,
                decode: now - prefilled,
            },
        };
        send(&self.submission.events, Event::Finished(finished));
    }
}
