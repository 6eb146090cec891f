//! Owns the way from a step's rows to a choice's events: the prompt's scores or vector, the next token, why it is the
//! last.

use super::{Choice, Guard};
use crate::error::EngineError;
use crate::event::{Event, FinishReason, StopCause};
use crate::output_rows::{OutputRows, Row};
use crate::sampler::{Draw, Sampler, Scores, check_largest};
use std::ops::Range;
use std::time::Instant;

impl Choice {
    /// Takes what a step computed at `positions`, whose wanted rows start at `row`: scores the prompt, and gives the row
    /// that makes a token, if one is there.
    pub fn take_rows(
        &mut self,
        positions: Range<usize>,
        mut row: usize,
        rows: &OutputRows,
        sampler: &mut Sampler,
    ) -> Result<Option<usize>, EngineError> {
        let last = positions.end - 1;
        let scores = self.job.request.prompt_logprobs.is_some() && !self.is_prompt_done;
        if scores || self.pool.is_some() {
            for position in positions {
                if let Some(pool) = self.pool.as_mut().filter(|pool| pool.wants(position)) {
                    pool.add(position, rows.hidden(row)?)?;
                    row += 1;
                } else if self.scores(position) {
                    self.score(position + 1, rows.logits(row)?, sampler)?;
                    row += 1;
                }
            }
        }
        if last + 1 >= self.given_len() && !self.is_prompt_done {
            self.finish_prompt();
        }
        Ok(self.makes_token(last).then_some(row))
    }

    fn score(
        &mut self,
        following: usize,
        logits: &[f32],
        sampler: &mut Sampler,
    ) -> Result<(), EngineError> {
        let top = self.job.request.prompt_logprobs.unwrap_or(0);
        let id = self.tokens[following];
        let scored = sampler.score(logits, id, top, following as u64)?.of(id);
        if self.scored.is_empty() {
            self.scored.push(None);
        }
        self.scored.push(Some(scored));
        Ok(())
    }

    /// Sends the prompt's log-probabilities; a request that wanted nothing else, or a vector, is over.
    fn finish_prompt(&mut self) {
        self.is_prompt_done = true;
        let request = &self.job.request;
        if request.max_tokens == 0 {
            self.finish = Some(FinishReason::Length);
        }
        if request.prompt_logprobs.is_none() {
            return;
        }
        if self.scored.is_empty() {
            // A prompt of one token: nothing was scored.
            self.scored.push(None);
        }
        let scored = std::mem::take(&mut self.scored);
        self.job.send(Event::PromptLogprobs(scored));
    }

    /// Makes the next token from a row of logits and sends it.
    pub fn make_token(
        &mut self,
        row: Row,
        sampler: &mut Sampler,
        now: Instant,
    ) -> Result<u32, EngineError> {
        let (id, scores) = self.draw(row, sampler)?;
        self.tokens.push(id);
        if let Some(penalties) = &mut self.penalties {
            penalties.add(id);
        }
        let stop = self.stop_cause(id);
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        self.job
            .send_token(self.key.choice, id, scores, stop.is_some());
        let is_full = self.output().len() == self.job.request.max_tokens;
        self.finish = match stop {
            Some(by) => Some(FinishReason::Stop { by }),
            None => is_full.then_some(FinishReason::Length),
        };
        Ok(id)
    }

    fn draw<'s>(
        &self,
        row: Row,
        sampler: &'s mut Sampler,
    ) -> Result<(u32, Option<Scores<'s>>), EngineError> {
        let request = &self.job.request;
        let position = self.tokens.len() as u64;
        let logits = match row {
            Row::Logits(logits) => logits,
            Row::Largest { id, logit } => {
                return check_largest(id, logit, position).map(|id| (id, None));
            }
        };
        let banned: [&[u32]; 2] = match self.bans_ends() {
            true => [&request.eos_ids, &request.stop_ids],
            false => [&[], &[]],
        };
        let mask = match &self.guard {
            Guard::Ready(constrained) => Some(&constrained.mask),
            _ => None,
        };
        let draw = Draw {
            params: &request.sampling,
            seed: self.seed,
            position,
            penalties: self.penalties.as_ref(),
            banned,
            masks: [self.job.allowed.as_ref(), mask],
            output: self.output(),
            logprobs: request.logprobs,
        };
        sampler.sample(logits, &draw)
    }

    fn stop_cause(&self, id: u32) -> Option<StopCause> {
        let request = &self.job.request;
        if !request.ignore_eos && request.eos_ids.contains(&id) {
            return Some(StopCause::Eos);
        }
        let stops = request.stop_ids.contains(&id);
        stops.then_some(StopCause::StopId(id))
    }
}
