//! Owns which choices take part in a step and with how many tokens. Knows no phases: every choice has computed tokens
//! catching up with its tokens, whether they are prompt or output.
//!
//! Running and waiting choices are kept in the order of their keys: priority, then arrival, then number. A step takes
//! choices with one missing token first (they decode), then those with more, each in that order, then admits waiting
//! ones while the token budget lasts. When the pool runs out, the last running choice gives its pages back and waits
//! again; by its key that is at the head of its class. So the first running choice always gets on, and with it, one
//! after another, all of them.

mod admission;
mod masks;
mod planning;
mod results;
#[cfg(test)]
mod tests;

use crate::choice::{Choice, Guard};
use crate::constraint_threads::ConstraintThreads;
use crate::event::FinishReason;
use crate::job::Job;
use crate::pager::{Footprint, Pager};
use crate::stats::SharedStats;
use mettle_plan::{BlockId, Sizes, StepInput};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Names a choice, and says when it is its turn: lower keys first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub priority: i32,
    pub arrival: u64,
    pub choice: usize,
}

/// The most that a step and the running choices may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub tokens: usize,
    pub sequences: usize,
    pub logit_rows: usize,
}

impl Budget {
    /// No more sequences than a step has tokens and logit rows for: each running one gets on in every step.
    pub fn new(bounds: &Sizes, max_sequences: usize, max_batched_tokens: usize) -> Budget {
        let tokens = bounds.tokens.min(max_batched_tokens);
        let sequences = bounds.sequences.min(max_sequences);
        Budget {
            tokens,
            sequences: sequences.min(tokens).min(bounds.logit_rows),
            logit_rows: bounds.logit_rows,
        }
    }
}

/// Steps compute one of these at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Logits, from which tokens are made.
    Tokens,
    /// Hidden states, which are pooled.
    Hidden,
    /// Prompts that an encoder reads, whole.
    Encoder,
}

impl Pass {
    const ALL: [Pass; 3] = [Pass::Tokens, Pass::Hidden, Pass::Encoder];
}

/// A running choice's part in the step under way.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Its place among the running ones.
    running: usize,
    /// Position of its first token in the step, and one past the last; of the prompt, where an encoder reads it.
    first: usize,
    end: usize,
    /// Its logit rows: where they start, and how many there are.
    first_row: usize,
    rows: usize,
}

/// What a scheduler is made with.
#[derive(Debug)]
pub(crate) struct SchedulerOptions {
    pub budget: Budget,
    pub footprint: Footprint,
    pub vocabulary: usize,
    /// All tokens of a choice go into one step: there is no cache that would keep some of them.
    pub in_one_step: bool,
    /// Rows that need only their largest logit may be asked for as `TopK(1)`.
    pub takes_largest: bool,
    pub constraint_time: Duration,
}

pub(crate) struct Scheduler {
    options: SchedulerOptions,
    /// In the order of their keys; bounded by the handle, which counts live requests.
    waiting: VecDeque<Choice>,
    /// In the order of their keys.
    running: Vec<Choice>,
    /// Choices that left their request's first one in the step under way.
    born: Vec<Choice>,
    shares: Vec<Share>,
    /// What the step under way computes.
    pass: Pass,
    /// Tokens and logit rows of all shares.
    planned: (usize, usize),
    /// When the step under way was begun.
    started: Instant,
    arrivals: u64,
    constraints: ConstraintThreads,
    /// The choice that was last refused although it might share pages, and the free and promised pages then.
    turned_away: Option<(Key, usize, usize)>,
    stats: Arc<SharedStats>,
}

impl Scheduler {
    pub fn new(options: SchedulerOptions, stats: Arc<SharedStats>) -> Scheduler {
        let sequences = options.budget.sequences;
        Scheduler {
            options,
            waiting: VecDeque::new(),
            running: Vec::with_capacity(sequences),
            born: Vec::new(),
            shares: Vec::with_capacity(sequences),
            pass: Pass::Tokens,
            planned: (0, 0),
            started: Instant::now(),
            arrivals: 0,
            constraints: ConstraintThreads::new(sequences),
            turned_away: None,
            stats,
        }
    }

    pub fn add(&mut self, job: Arc<Job>) {
        let key = Key {
            priority: job.request.priority,
            arrival: self.arrivals,
            choice: 0,
        };
        self.arrivals += 1;
        let mut choice = Choice::first(job, key);
        self.start_constraint(&mut choice);
        self.wait(choice);
        self.publish_counts();
    }

    /// Nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Fills the step. Page copies that must run before it are put into `copies`.
    pub fn schedule(
        &mut self,
        pager: &mut Pager,
        step: &mut StepInput,
        copies: &mut Vec<(BlockId, BlockId)>,
    ) {
        self.started = Instant::now();
        self.await_masks(pager);
        let now = Instant::now();
        self.end_unwanted(pager, now);
        copies.clear();
        self.shares.clear();
        self.planned = (0, 0);
        self.plan_step(pager, copies, now);
        self.build(pager, step);
        self.publish_counts();
    }

    /// Gives a choice's pages back, if it has any.
    fn take_pages(&self, choice: &mut Choice, pager: &mut Pager) {
        if let Some(sequence) = choice.sequence.take() {
            pager.free(sequence);
        }
    }

    fn wait(&mut self, choice: Choice) {
        let place = self.waiting.partition_point(|c| c.key < choice.key);
        self.waiting.insert(place, choice);
    }

    /// Puts a choice with pages among the running ones and gives its place.
    fn run(&mut self, choice: Choice) -> usize {
        let place = self.running.partition_point(|c| c.key < choice.key);
        self.running.insert(place, choice);
        for share in self.shares.iter_mut().filter(|s| s.running >= place) {
            share.running += 1;
        }
        place
    }

    /// Ends what was aborted, came too late or waits for its constraint for too long.
    fn end_unwanted(&mut self, pager: &mut Pager, now: Instant) {
        let limit = self.options.constraint_time;
        let mut stuck = 0;
        for choice in self.running.iter_mut().chain(&mut self.waiting) {
            if choice.is_aborted() {
                choice.finish = Some(FinishReason::Abort);
            } else if choice.job.is_late(now) {
                choice.finish = Some(FinishReason::Deadline);
            } else if matches!(choice.guard, Guard::Away(since) if now - since > limit) {
                let message = format!("the constraint took longer than {limit:?} for a token");
                choice.finish = Some(FinishReason::Error(message));
                stuck += 1;
            }
        }
        (0..stuck).for_each(|_| self.constraints.replace_one());
        self.retire(pager, now);
    }

    fn publish_counts(&self) {
        self.stats.running.store(self.running.len(), Relaxed);
        self.stats.queued.store(self.waiting.len(), Relaxed);
    }
}

/// The pages of a running choice.
fn sequence_of(choice: &Choice) -> crate::pager::SequenceId {
    choice.sequence.expect("a running choice has pages")
}
