//! Owns the plan of a step: how many tokens each running choice gets, whose pages are taken for that, and the step itself.

use super::{Scheduler, Share, sequence_of};
use crate::choice::Choice;
use crate::pager::Pager;
use mettle_plan::{BlockId, InputToken, OutputKind, StepInput, TokenRow};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Scheduler {
    /// A step gives logits or hidden states, never both: where both are wanted, steps take turns, and a turn in which
    /// nobody could get on goes to the others.
    pub(super) fn plan_step(
        &mut self,
        pager: &mut Pager,
        copies: &mut Vec<(BlockId, BlockId)>,
        now: Instant,
    ) {
        let everyone = || self.running.iter().chain(&self.waiting);
        let is_mixed = everyone().any(Choice::is_pooled) && !everyone().all(Choice::is_pooled);
        self.pools = match is_mixed {
            true => !self.pools,
            false => everyone().any(Choice::is_pooled),
        };
        self.plan_kind(pager, copies, now);
        if is_mixed && self.shares.is_empty() {
            self.pools = !self.pools;
            self.plan_kind(pager, copies, now);
        }
    }

    /// Shares for the choices that want what this step gives; what is admitted on the way may want the other.
    fn plan_kind(&mut self, pager: &mut Pager, copies: &mut Vec<(BlockId, BlockId)>, now: Instant) {
        self.plan_running(true, pager, copies);
        self.plan_running(false, pager, copies);
        while self.has_room()
            && let Some(index) = self.admit(pager, now)
        {
            if self.running[index].is_pooled() == self.pools {
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
            let decodes = missing == 1 && !self.options.in_one_step;
            if decodes == decoding && choice.is_pooled() == self.pools {
                self.plan_share(index, pager, copies);
            }
            index += 1;
        }
    }

    /// Whether one more choice could get on in this step.
    fn has_room(&self) -> bool {
        let (tokens, rows) = self.room();
        tokens > 0 && rows > 0
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
        let (token_room, row_room) = self.room();
        let choice = &self.running[index];
        let sequence = sequence_of(choice);
        let first = pager.computed(sequence);
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
        let is_short = self.options.in_one_step && end < choice.computable();
        if end == first || is_short {
            return;
        }
        while pager.grow(sequence, end, copies).is_err() {
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
            _ if self.pools => OutputKind::Hidden,
            true => OutputKind::TopK(1),
            false => OutputKind::Logits,
        };
    }
}
