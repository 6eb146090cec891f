//! Owns what happens after a step: logits become tokens, choices leave their request's first one, finished ones end.

use super::{Pass, Scheduler, Share, sequence_of};
use crate::choice::Choice;
use crate::constraint_threads::ConstraintThreads;
use crate::error::EngineError;
use crate::event::FinishReason;
use crate::output_rows::{OutputRows, Row};
use crate::pager::Pager;
use crate::sampler::Sampler;
use crate::stats::SharedStats;
use mettle_plan::StepOutput;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Scheduler {
    /// Takes the results of the step. An error is the device's: no choice can go on.
    pub fn commit(
        &mut self,
        output: &StepOutput,
        pager: &mut Pager,
        sampler: &mut Sampler,
    ) -> Result<(), EngineError> {
        let now = Instant::now();
        let rows = OutputRows::new(output, self.options.vocabulary)?;
        let shares = std::mem::take(&mut self.shares);
        for share in &shares {
            self.commit_share(share, &rows, pager, sampler, now);
        }
        // Before any end is told: who hears of it may look at the numbers.
        let tokens = shares.iter().map(|s| s.end - s.first).sum();
        self.stats
            .count_step(self.started.elapsed(), tokens, shares.len());
        self.shares = shares;
        self.shares.clear();
        self.retire(pager, now);
        self.place_born(pager, now);
        self.publish_counts();
        Ok(())
    }

    /// A row that cannot become a token ends its choice alone. What that one cached does not enter the index: where
    /// logits are broken, keys and values may be.
    fn commit_share(
        &mut self,
        share: &Share,
        rows: &OutputRows,
        pager: &mut Pager,
        sampler: &mut Sampler,
        now: Instant,
    ) {
        let choice = &mut self.running[share.running];
        let sequence = sequence_of(choice);
        if self.pass == Pass::Encoder {
            return pager.commit_encoded(sequence);
        }
        let row = choice.take_rows(share.first..share.end, share.first_row, rows, sampler);
        let row = row.and_then(|row| row.map(|row| rows.row(row)).transpose());
        let mut maker = Maker {
            sampler,
            stats: &self.stats,
            constraints: &mut self.constraints,
            now,
        };
        // Choices that leave here do so in the state before any of them has a token.
        let first_born = self.born.len();
        if let Ok(Some(_)) = row {
            self.born.extend(choice.take_siblings());
        }
        let siblings = &mut self.born[first_born..];
        let made = row.and_then(|row| {
            row.map_or(Ok(()), |row| {
                maker.make_token(choice, row)?;
                siblings
                    .iter_mut()
                    .try_for_each(|sibling| maker.make_token(sibling, row))
            })
        });
        match made {
            Ok(()) => {
                pager.commit(sequence, &choice.tokens, share.end);
                for sibling in siblings.iter_mut().filter(|s| s.finish.is_none()) {
                    sibling.sequence = Some(pager.fork(sequence, sibling.cached_at_most()));
                }
            }
            Err(error) => {
                let reason = FinishReason::Error(error.to_string());
                siblings
                    .iter_mut()
                    .for_each(|s| s.finish = Some(reason.clone()));
                choice.finish = Some(reason);
            }
        }
    }

    /// Choices that just left run on if there is a place, else they wait like preempted ones.
    fn place_born(&mut self, pager: &mut Pager, now: Instant) {
        let mut born = std::mem::take(&mut self.born);
        for mut choice in born.drain(..) {
            if choice.finish.is_some() {
                self.end(choice, pager, now);
            } else if self.running.len() < self.options.budget.sequences {
                self.run(choice);
            } else {
                self.take_pages(&mut choice, pager);
                self.wait(choice);
            }
        }
        self.born = born;
    }

    /// Ends all that runs or waits.
    pub fn end_all(&mut self, pager: &mut Pager, reason: &FinishReason) {
        let everyone = self.running.iter_mut().chain(&mut self.waiting);
        for choice in everyone.chain(&mut self.born) {
            choice.finish = Some(reason.clone());
        }
        let now = Instant::now();
        self.retire(pager, now);
        self.place_born(pager, now);
    }

    /// Ends the choices that are over.
    pub(super) fn retire(&mut self, pager: &mut Pager, now: Instant) {
        let is_over = |choice: &Choice| choice.finish.is_some();
        while let Some(index) = self.running.iter().position(is_over) {
            let choice = self.running.remove(index);
            self.end(choice, pager, now);
        }
        while let Some(index) = self.waiting.iter().position(is_over) {
            let choice = self.waiting.remove(index).expect("it was just found");
            self.end(choice, pager, now);
        }
    }

    fn end(&mut self, mut choice: Choice, pager: &mut Pager, now: Instant) {
        let reason = choice.finish.take().expect("the caller saw it");
        self.take_pages(&mut choice, pager);
        // Before the event: who reads it may look at the numbers or submit the next request at once.
        self.stats.publish(pager);
        self.publish_counts();
        for end in choice.ends(reason, now) {
            self.stats.count_end(&end, &choice.job.request);
            if choice.job.close_one() {
                self.stats.live.fetch_sub(1, Relaxed);
            }
            choice.job.end(end);
        }
    }
}

/// What making tokens needs besides a choice and its row.
struct Maker<'a> {
    sampler: &'a mut Sampler,
    stats: &'a SharedStats,
    constraints: &'a mut ConstraintThreads,
    now: Instant,
}

impl Maker<'_> {
    fn make_token(&mut self, choice: &mut Choice, row: Row) -> Result<(), EngineError> {
        let before = choice.last_token();
        let id = choice.make_token(row, self.sampler, self.now)?;
        self.stats.generated_tokens.fetch_add(1, Relaxed);
        let histograms = &self.stats.histograms;
        let (histogram, since) = match before {
            None => (&histograms.time_to_first_token, choice.job.submitted),
            Some(before) => (&histograms.inter_token_latency, before),
        };
        histogram.record_time(self.now - since);
        if let Some(constrained) = choice.send_guard_away(self.now) {
            self.constraints.advance(choice.key, constrained, Some(id));
        }
        Ok(())
    }
}
