//! Owns which requests take part in a step and with how many tokens. Knows no phases: every request has computed tokens
//! catching up with its tokens, whether they are prompt or output.
//!
//! There is no preemption yet, so a request is admitted only if its prompt plus `max_tokens` fits in the pool together
//! with all that the running requests may still take: an admitted request never runs out of blocks.

use crate::error::EngineError;
use crate::event::FinishReason;
use crate::pager::{ChainHash, Footprint, Pager};
use crate::running::{Running, Submission};
use crate::sampler::Sampler;
use crate::stats::SharedStats;
use mettle_plan::{BlockId, InputToken, Sizes, StepInput, StepOutput, TokenRow};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most that a step and the running requests may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub tokens: usize,
    pub sequences: usize,
    pub logit_rows: usize,
}

impl Budget {
    pub fn new(bounds: &Sizes, max_sequences: usize, max_batched_tokens: usize) -> Budget {
        Budget {
            tokens: bounds.tokens.min(max_batched_tokens),
            sequences: bounds.sequences.min(max_sequences),
            logit_rows: bounds.logit_rows,
        }
    }
}

/// A running request's part in the step under way.
#[derive(Clone, Copy, Debug)]
struct Share {
    running: usize,
    /// Position of its first token in the step, and one past the last.
    first: usize,
    end: usize,
    /// Where its rows start among the step's logit rows.
    first_row: usize,
}

pub(crate) struct Scheduler {
    /// In order of arrival; bounded by the handle, which counts live requests.
    waiting: VecDeque<Submission>,
    running: Vec<Running>,
    shares: Vec<Share>,
    budget: Budget,
    footprint: Footprint,
    vocabulary: usize,
    stats: Arc<SharedStats>,
}

impl Scheduler {
    pub fn new(
        budget: Budget,
        footprint: Footprint,
        vocabulary: usize,
        stats: Arc<SharedStats>,
    ) -> Scheduler {
        Scheduler {
            waiting: VecDeque::new(),
            running: Vec::with_capacity(budget.sequences),
            shares: Vec::with_capacity(budget.sequences),
            budget,
            footprint,
            vocabulary,
            stats,
        }
    }

    pub fn add(&mut self, submission: Submission) {
        self.waiting.push_back(submission);
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Fills the step: running requests first, in order of admission, then waiting ones, inside the token budget.
    /// Page copies that must run before the step are added to `copies`.
    pub fn schedule(
        &mut self,
        pager: &mut Pager,
        step: &mut StepInput,
        copies: &mut Vec<(BlockId, BlockId)>,
    ) {
        self.drop_aborted(pager);
        step.clear();
        copies.clear();
        self.shares.clear();
        for index in 0..self.running.len() {
            self.give_share(index, pager, step, copies);
        }
        while step.tokens.len() < self.budget.tokens && self.admit(pager) {
            self.give_share(self.running.len() - 1, pager, step, copies);
        }
    }

    /// Takes the results of the step: logits become tokens and scores, full pages enter the prefix index, finished
    /// requests leave.
    pub fn commit(
        &mut self,
        output: &StepOutput,
        pager: &mut Pager,
        sampler: &mut Sampler,
    ) -> Result<(), EngineError> {
        if let StepOutput::Logits { width, .. } = *output
            && width < self.vocabulary
        {
            let vocabulary = self.vocabulary;
            return Err(EngineError::TooFewLogits { width, vocabulary });
        }
        for share in &self.shares {
            let running = &mut self.running[share.running];
            let before = running.tokens.len();
            let rows = (share.first_row..).map(|row| &output.logits_row(row)[..self.vocabulary]);
            match running.take_step(share.first..share.end, rows, sampler) {
                Ok(()) => pager.commit(running.sequence, &running.tokens, share.end),
                // Nor does what it cached enter the index: where logits are broken, keys and values may be.
                Err(error) => running.finish = Some(FinishReason::Error(error.to_string())),
            }
            let made = running.tokens.len() - before;
            self.stats.generated_tokens.fetch_add(made as u64, Relaxed);
        }
        self.retire(pager);
        Ok(())
    }

    /// Ends the requests of a step that failed; the others go on.
    pub fn fail_step(&mut self, pager: &mut Pager, message: &str) {
        for share in &self.shares {
            self.running[share.running].finish = Some(FinishReason::Error(message.to_owned()));
        }
        self.retire(pager);
    }

    /// Ends all requests.
    pub fn end_all(&mut self, pager: &mut Pager, reason: &FinishReason) {
        for running in &mut self.running {
            running.finish = Some(reason.clone());
        }
        self.retire(pager);
        for submission in self.waiting.drain(..) {
            self.stats.live.fetch_sub(1, Relaxed);
            submission.end(reason.clone());
        }
    }

    fn drop_aborted(&mut self, pager: &mut Pager) {
        for running in &mut self.running {
            if running.is_aborted() {
                running.finish = Some(FinishReason::Abort);
            }
        }
        self.retire(pager);
        while let Some(index) = self.waiting.iter().position(Submission::is_aborted) {
            let submission = self.waiting.remove(index).expect("it was just found");
            self.stats.live.fetch_sub(1, Relaxed);
            submission.end(FinishReason::Abort);
        }
    }

    fn retire(&mut self, pager: &mut Pager) {
        while let Some(index) = self.running.iter().position(|r| r.finish.is_some()) {
            let mut running = self.running.remove(index);
            pager.free(running.sequence);
            let reason = running.finish.take().expect("it was just seen");
            // Before the event: who reads it may look at the numbers or submit the next request at once.
            self.stats.publish(pager);
            self.stats.running.store(self.running.len(), Relaxed);
            self.stats.live.fetch_sub(1, Relaxed);
            running.end(reason);
        }
        self.stats.running.store(self.running.len(), Relaxed);
    }

    /// Moves the first waiting request to the running ones, if one more may run and it fits.
    fn admit(&mut self, pager: &mut Pager) -> bool {
        let Some(next) = self.waiting.front() else {
            return false;
        };
        let promised: usize = self.running.iter().map(|r| r.pages).sum();
        let tokens = next.request.cached_tokens_at_most();
        let pages = self.footprint.pages_at_most(tokens);
        if self.running.len() >= self.budget.sequences || promised + pages > self.footprint.pages()
        {
            return false;
        }
        let submission = self.waiting.pop_front().expect("it was just seen");
        let request = &submission.request;
        let root = ChainHash::root(request.cache_salt.as_deref());
        let read_index = request.prompt_logprobs.is_none();
        let sequence = pager.begin(&request.prompt, root, read_index, tokens);
        self.stats
            .prompt_tokens
            .fetch_add(request.prompt.len() as u64, Relaxed);
        let cached = pager.computed(sequence);
        let running = Running::new(submission, sequence, cached, pages, self.vocabulary);
        self.running.push(running);
        self.stats.running.store(self.running.len(), Relaxed);
        true
    }

    /// Adds as many of a request's missing tokens as the budget allows, perhaps none.
    fn give_share(
        &mut self,
        index: usize,
        pager: &mut Pager,
        step: &mut StepInput,
        copies: &mut Vec<(BlockId, BlockId)>,
    ) {
        let running = &self.running[index];
        let first = pager.computed(running.sequence);
        let room = self.budget.tokens - step.tokens.len();
        let (first_token, first_row) = (step.tokens.len(), step.logit_rows.len());
        let mut end = first;
        while end < running.tokens.len() && end - first < room {
            if running.wants_logits(end) {
                if step.logit_rows.len() == self.budget.logit_rows {
                    break;
                }
                let row = first_token + end - first;
                step.logit_rows.push(TokenRow(row as u32));
            }
            end += 1;
        }
        if end == first {
            return;
        }
        let grown = pager.grow(running.sequence, end, copies);
        grown.expect("admission set this request's pages aside");
        let tokens = running.tokens[first..end].iter();
        step.push_sequence(tokens.map(|t| InputToken::Host(*t)), first as u32);
        pager.push_tables(running.sequence, end, &mut step.tables);
        self.shares.push(Share {
            running: index,
            first,
            end,
            first_row,
        });
    }
}
