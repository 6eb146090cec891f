//! Owns one answer to a request: its tokens, its place among its siblings, and how it ends.

mod next_token;

use crate::constraint_threads::Constrained;
use crate::event::{FinishReason, Finished, Timings, TokenLogprobs, Usage};
use crate::job::Job;
use crate::pager::SequenceId;
use crate::pooling::Pool;
use crate::sampler::Penalties;
use crate::sampler::philox::choice_seed;
use crate::scheduler::Key;
use std::sync::Arc;
use std::time::Instant;

/// Where a choice's constraint is.
#[derive(Debug)]
pub(crate) enum Guard {
    None,
    /// Here, with the mask for the next token.
    Ready(Box<Constrained>),
    /// With a constraint thread, since then.
    Away(Instant),
}

#[derive(Debug)]
pub(crate) struct Choice {
    pub job: Arc<Job>,
    pub key: Key,
    /// Its pages; `None` while it waits.
    pub sequence: Option<SequenceId>,
    /// What was given, and the output.
    pub tokens: Vec<u32>,
    pub guard: Guard,
    /// Set once it is over; it leaves after the step.
    pub finish: Option<FinishReason>,
    seed: u64,
    penalties: Option<Penalties>,
    /// Prompt tokens found in the prefix cache when it first ran.
    cached: Option<usize>,
    /// The prompt's log-probabilities so far, where they were asked for.
    scored: Vec<Option<TokenLogprobs>>,
    /// The prompt's vector so far, where that is asked for in place of tokens.
    pool: Option<Pool>,
    /// The prompt was computed once and its log-probabilities were sent.
    is_prompt_done: bool,
    /// The other choices of its request exist; only the first choice ever lacks them.
    has_siblings: bool,
    admitted: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Choice {
    /// The first choice of a request; the others leave it once the prompt is computed.
    pub fn first(job: Arc<Job>, key: Key) -> Choice {
        let (request, given) = (&job.request, job.given());
        let mut tokens = Vec::with_capacity(given.len() + request.max_tokens);
        tokens.extend_from_slice(given);
        Choice {
            seed: choice_seed(job.seed, 0),
            has_siblings: request.n == 1,
            key,
            sequence: None,
            tokens,
            guard: Guard::None,
            finish: None,
            penalties: None,
            cached: None,
            scored: Vec::new(),
            pool: request.pooling.map(|p| Pool::new(p, request.prompt.len())),
            is_prompt_done: false,
            admitted: None,
            first_token: None,
            last_token: None,
            job,
        }
    }

    /// The request's other choices, in the state of this one, if it is time for them; they have no pages yet.
    pub fn take_siblings(&mut self) -> impl Iterator<Item = Choice> {
        let count = match std::mem::replace(&mut self.has_siblings, true) {
            true => 1,
            false => self.job.request.n,
        };
        let first = &*self;
        (1..count).map(move |choice| first.sibling(choice))
    }

    fn sibling(&self, choice: usize) -> Choice {
        let max_tokens = self.job.request.max_tokens;
        let mut tokens = Vec::with_capacity(self.given_len() + max_tokens);
        tokens.extend_from_slice(&self.tokens);
        Choice {
            job: self.job.clone(),
            key: Key { choice, ..self.key },
            sequence: None,
            tokens,
            guard: match &self.guard {
                Guard::Ready(constrained) => Guard::Ready(constrained.fork()),
                _ => Guard::None,
            },
            finish: None,
            seed: choice_seed(self.job.seed, choice),
            penalties: self.penalties.as_ref().map(|p| p.fork(max_tokens)),
            cached: self.cached,
            scored: Vec::new(),
            pool: None,
            is_prompt_done: true,
            has_siblings: true,
            admitted: self.admitted,
            first_token: None,
            last_token: None,
        }
    }

    pub fn prompt_len(&self) -> usize {
        self.job.request.prompt.len()
    }

    /// Tokens before the output.
    fn given_len(&self) -> usize {
        self.job.given().len()
    }

    fn output(&self) -> &[u32] {
        &self.tokens[self.given_len()..]
    }

    pub fn is_aborted(&self) -> bool {
        match self.has_siblings {
            true => self.job.is_aborted(self.key.choice),
            // It stands for all: who aborts one still wants the others.
            false => (0..self.job.request.n).all(|choice| self.job.is_aborted(choice)),
        }
    }

    /// Tokens of its cache at the most: the last one made is never computed.
    pub fn cached_at_most(&self) -> usize {
        self.given_len() + self.job.request.max_tokens.saturating_sub(1)
    }

    /// Tokens that the cache will hold after the next one is made.
    pub fn next_length(&self) -> usize {
        (self.tokens.len() + 1).min(self.cached_at_most())
    }

    /// Whether pages of others may be used: where the prompt's log-probabilities or the mean of its hidden states are
    /// still to be found, every position has to be computed.
    pub fn reads_cache(&self) -> bool {
        let needs_all = self.pool.as_ref().is_some_and(Pool::needs_all)
            || self.job.request.prompt_logprobs.is_some();
        !needs_all || self.is_prompt_done
    }

    /// Whether it wants hidden states, which no step gives together with logits.
    pub fn is_pooled(&self) -> bool {
        self.pool.is_some()
    }

    /// Takes its pages, of which `cached` tokens are computed already; true where it runs for the first time.
    pub fn admit(
        &mut self,
        sequence: SequenceId,
        cached: usize,
        now: Instant,
        vocabulary: usize,
    ) -> bool {
        self.sequence = Some(sequence);
        if self.cached.is_some() {
            return false;
        }
        let request = &self.job.request;
        let (given, max_tokens) = (self.job.given(), request.max_tokens);
        self.penalties = Penalties::new(&request.sampling, given, max_tokens, vocabulary);
        if request.prompt_logprobs.is_some() {
            self.scored.reserve_exact(given.len());
        }
        self.cached = Some(cached);
        self.admitted = Some(now);
        true
    }

    /// How far a step may compute: to the end, but for the last token while the mask for the next is missing.
    pub fn computable(&self) -> usize {
        match self.guard {
            Guard::Away(_) => self.tokens.len() - 1,
            _ => self.tokens.len(),
        }
    }

    /// Whether the row at this position is wanted. Hidden states as their pooling says; logits of the prompt's positions
    /// but the last where its log-probabilities were asked for and are not known yet, and those of the last token where
    /// another one is to be made.
    pub fn wants_row(&self, position: usize) -> bool {
        match &self.pool {
            Some(pool) => pool.wants(position),
            None => self.scores(position) || self.makes_token(position),
        }
    }

    fn scores(&self, position: usize) -> bool {
        let following = position + 1;
        self.job.request.prompt_logprobs.is_some()
            && following < self.given_len()
            && following >= self.scored.len()
            && !self.is_prompt_done
    }

    fn makes_token(&self, position: usize) -> bool {
        position + 1 == self.tokens.len() && self.job.request.max_tokens > 0
    }

    /// Whether the largest logit of the last row is all that the next token depends on, and nothing else is wanted.
    pub fn is_plain_greedy(&self) -> bool {
        let request = &self.job.request;
        request.sampling.is_plain_greedy()
            && request.logprobs.is_none()
            && (request.prompt_logprobs.is_none() || self.is_prompt_done)
            && matches!(self.guard, Guard::None)
            && !self.bans_ends()
    }

    /// End-of-sequence tokens and stop ids are impossible yet.
    fn bans_ends(&self) -> bool {
        let request = &self.job.request;
        self.output().len() < request.min_tokens
            && !(request.eos_ids.is_empty() && request.stop_ids.is_empty())
    }

    /// The constraint, to be told of the token just made, where the choice goes on.
    pub fn send_guard_away(&mut self, now: Instant) -> Option<Box<Constrained>> {
        if self.finish.is_some() || !matches!(self.guard, Guard::Ready(_)) {
            return None;
        }
        match std::mem::replace(&mut self.guard, Guard::Away(now)) {
            Guard::Ready(constrained) => Some(constrained),
            _ => unreachable!("it was just looked at"),
        }
    }

    /// When its last token was made.
    pub fn last_token(&self) -> Option<Instant> {
        self.last_token
    }

    /// The terminal events: its own, or those of all choices where there is only this one yet.
    pub fn ends(&self, reason: FinishReason, now: Instant) -> impl Iterator<Item = Finished> {
        let own = self.key.choice;
        let choices = match self.has_siblings {
            true => own..own + 1,
            false => 0..self.job.request.n,
        };
        let since = |start: Option<Instant>, end: Option<Instant>| match (start, end) {
            (Some(start), Some(end)) => end.saturating_duration_since(start),
            _ => std::time::Duration::ZERO,
        };
        let admitted = self.admitted.or(Some(now));
        // A choice without a token spent all its time on the prompt.
        let first_token = self.first_token.or(Some(now));
        let timings = Timings {
            queue: since(Some(self.job.submitted), admitted),
            prefill: since(admitted, first_token),
            decode: since(first_token, Some(now)),
        };
        let usage = Usage {
            prompt: self.prompt_len(),
            completion: self.output().len(),
            cached: self.cached.unwrap_or(0),
        };
        let pooled = self.pool.as_ref().filter(|_| self.is_prompt_done);
        let pooled = pooled.map(Pool::vector);
        choices.map(move |choice| Finished {
            choice,
            reason: reason.clone(),
            usage,
            timings,
            pooled: pooled.clone(),
        })
    }
}
