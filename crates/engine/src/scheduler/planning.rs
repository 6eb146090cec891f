//! Owns the plan of a step: how many tokens each running choice gets, whose pages are taken for that, and the step itself.

use super::{Pass, Scheduler, Share, sequence_of};
use crate::choice::Choice;
use crate::pager::Pager;
use mettle_plan::{BlockId, InputToken, OutputKind, StepInput, TokenRow};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Scheduler {
    /// A step makes one pass: where several are wanted, steps take turns, and a turn in which nobody could get on goes to the
    /// next.
    pub(super) fn plan_step(
        &mut self,
        pager: &mut Pager,
        copies: &mut Vec<(BlockId, BlockId)>,
        now: Instant,
    ) {
        let last = Pass::ALL.iter().position(|pass| *pass == self.pass);
        let last = last.expect("one of all");
        for turn in 1..=Pass::ALL.len() {
            let pass = Pass::ALL[(last + turn) % Pass::ALL.len()];
            let mut everyone = self.running.iter().chain(&self.waiting);
            if !everyone.any(|choice| pass_of(choice, pager) == pass) {
                continue;
            }
            self.pass = pass;
            self.plan_pass(pager, copies, now);
            if !self.shares.is_empty() {
                return;
            }
        }
    }

    /// Shares for the choices that want this pass; what is admitted on the way may want another.
    fn plan_pass(&mut self, pager: &mut Pager, copies: &mut Vec<(BlockId, BlockId)>, now: Instant) {
        self.plan_running(true, pager, copies);
        self.plan_running(false, pager, copies);
        while self.has_room()
            && let Some(index) = self.admit(pager, now)
        {
            if pass_of(&self.running[index], pager) == self.pass {
                self.plan_share(index, pager, copies);
            }
        }
    }

    /// Gives every running choice its share: those that decode, or the others.
    fn plan_running(
        &mut self,
        decoding: bool,
        pager: &mut Pager,
        copies: &mut Vec<(BlockId, BlockId)>,
    ) {
        let mut index = 0;
        // A preemption takes the last one out.
        while index < self.running.len() {
            let choice = &self.running[index];
            let missing = choice.tokens.len() - pager.computed(sequence_of(choice));
            // Texts that are read whole are all of one kind.
            let is_whole = self.options.in_one_step || self.pass == Pass::Encoder;
            let decodes = missing == 1 && !is_whole;
            if decodes == decoding && pass_of(choice, pager) == self.pass {
                self.plan_share(index, pager, copies);
            }
            index += 1;
        }
    }

    /// Whether one more choice could get on in this step. One whose input does not fit waits for another: it may be the
    /// first of all once it runs, and the first gets on.
    fn has_room(&self) -> bool {
        let (tokens, rows) = self.room();
        let next = self.waiting.front();
        let input = next.map_or(0, |choice| choice.job.encoder_input().len());
        tokens > 0 && rows > 0 && (self.pass != Pass::Encoder || input <= tokens)
    }

    /// Tokens and logit rows that the step has left.
    fn room(&self) -> (usize, usize) {
        let budget = &self.options.budget;
        let (tokens, rows) = self.planned;
        (budget.tokens - tokens, budget.logit_rows - rows)
    }

    /// Sets aside as many of a choice's missing tokens as the budget allows, perhaps none, and the pages for them; for
    /// these the last running choices are preempted, in the end itself.
    fn plan_share(
        &mut self,
        index: usize,
        pager: &mut Pager,
        copies: &mut Vec<(BlockId, BlockId)>,
    ) {
        let choice = &self.running[index];
        let sequence = sequence_of(choice);
        let first = pager.computed(sequence);
        let (end, rows) = match self.pass {
            Pass::Encoder => (self.whole_input(choice), 0),
            _ => self.next_tokens(choice, first),
        };
        let is_short = self.options.in_one_step && end < choice.computable();
        if end == first || is_short {
            return;
        }
        // An encoder's step writes no token of the sequence.
        let grown = match self.pass {
            Pass::Encoder => first,
            _ => end,
        };
        while pager.grow(sequence, grown, copies).is_err() {
            assert!(
                self.running.len() > 1,
                "a choice alone in the pool has room by its footprint"
            );
            self.preempt_last(pager);
            if index == self.running.len() {
                return;
            }
        }
        self.planned.0 += end - first;
        self.planned.1 += rows;
        self.shares.push(Share {
            running: index,
            first,
            end,
            first_row: 0,
            rows,
        });
    }

    /// How far the step's room reaches behind `first`, and the rows that are wanted up to there.
    fn next_tokens(&self, choice: &Choice, first: usize) -> (usize, usize) {
        let (token_room, row_room) = self.room();
        let (mut end, mut rows) = (first, 0);
        while end < choice.computable() && end - first < token_room {
            if choice.wants_row(end) {
                if rows == row_room {
                    break;
                }
                rows += 1;
            }
            end += 1;
        }
        (end, rows)
    }

    /// An encoder reads a prompt whole: where it does not fit this step it fits another.
    fn whole_input(&self, choice: &Choice) -> usize {
        let input = choice.job.encoder_input().len();
        match input <= self.room().0 {
            true => input,
            false => 0,
        }
    }

    /// Takes the pages of the youngest choice of the lowest priority; it keeps its tokens and waits.
    fn preempt_last(&mut self, pager: &mut Pager) {
        let mut choice = self.running.pop().expect("the caller saw one");
        let left = self.running.len();
        if let Some(place) = self.shares.iter().position(|s| s.running == left) {
            let share = self.shares.remove(place);
            self.planned.0 -= share.end - share.first;
            self.planned.1 -= share.rows;
        }
        self.take_pages(&mut choice, pager);
        self.wait(choice);
        self.stats.preemptions.fetch_add(1, Relaxed);
    }

    /// Puts the shares into the step.
    pub(super) fn build(&mut self, pager: &Pager, step: &mut StepInput) {
        step.clear();
        step.plan = 0;
        if self.pass == Pass::Encoder {
            return self.build_encoder(pager, step);
        }
        let mut all_plain = true;
        for share in &mut self.shares {
            let choice = &self.running[share.running];
            share.first_row = step.logit_rows.len();
            let first_token = step.tokens.len();
            for position in share.first..share.end {
                if choice.wants_row(position) {
                    let row = first_token + position - share.first;
                    step.logit_rows.push(TokenRow(row as u32));
                }
            }
            let tokens = choice.tokens[share.first..share.end].iter();
            step.push_sequence(tokens.map(|t| InputToken::Host(*t)), share.first as u32);
            pager.push_tables(sequence_of(choice), share.end, &mut step.tables);
            all_plain &= choice.is_plain_greedy();
        }
        step.output = match self.options.takes_largest && all_plain {
            _ if self.pass == Pass::Hidden => OutputKind::Hidden,
            true => OutputKind::TopK(1),
            false => OutputKind::Logits,
        };
    }

    /// The prompts that an encoder reads: no row of theirs is wanted.
    fn build_encoder(&mut self, pager: &Pager, step: &mut StepInput) {
        step.plan = 1;
        step.output = OutputKind::Logits;
        for share in &self.shares {
            let choice = &self.running[share.running];
            let input = choice.job.encoder_input().iter();
            step.push_sequence(input.map(|t| InputToken::Host(*t)), 0);
            pager.push_tables(sequence_of(choice), 0, &mut step.tables);
        }
    }
}

/// What a choice needs next.
pub(super) fn pass_of(choice: &Choice, pager: &Pager) -> Pass {
    let is_encoded = match choice.sequence {
        Some(sequence) => pager.is_encoded(sequence),
        None => choice.job.encoder_input().is_empty(),
    };
    match is_encoded {
        _ if choice.is_pooled() => Pass::Hidden,
        true => Pass::Tokens,
        false => Pass::Encoder,
    }
}
