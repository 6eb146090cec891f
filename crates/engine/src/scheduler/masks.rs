//! Owns the waiting for masks: constraints leave with a token and come back with what may follow it.

use super::{Scheduler, sequence_of};
use crate::choice::{Choice, Guard};
use crate::constraint::MASK_PATIENCE;
use crate::constraint_threads::{Advanced, Constrained};
use crate::event::{FinishReason, StopCause};
use crate::pager::Pager;
use std::time::{Duration, Instant};

impl Scheduler {
    /// Sends a new choice's constraint for its first mask: it will be there before the prompt is computed.
    pub(super) fn start_constraint(&mut self, choice: &mut Choice) {
        if let Some(constraint) = &choice.job.request.constraint {
            let constrained = Constrained::new(constraint.fork(), self.options.vocabulary);
            choice.guard = Guard::Away(Instant::now());
            self.constraints.advance(choice.key, constrained, None);
        }
    }

    /// Takes the masks that are there, and waits a little for those without which a choice would miss this step.
    pub(super) fn await_masks(&mut self, pager: &Pager) {
        while let Some(advanced) = self.constraints.next_result() {
            self.take_mask(advanced);
        }
        // When the last of those masks has been away for too long.
        while let Some(until) = self
            .running
            .iter()
            .filter_map(|choice| patience_end(choice, pager))
            .max()
        {
            let left = until.saturating_duration_since(Instant::now());
            match self.constraints.wait_for_result(left) {
                Some(advanced) => self.take_mask(advanced),
                None => return,
            }
        }
    }

    /// For a step in which nobody could take part: waits for any mask. False where no mask is missing.
    pub fn wait_for_mask(&mut self, at_most: Duration) -> bool {
        let is_away = |choice: &Choice| matches!(choice.guard, Guard::Away(_));
        if !self.running.iter().any(is_away) {
            return false;
        }
        if let Some(advanced) = self.constraints.wait_for_result(at_most) {
            self.take_mask(advanced);
        }
        true
    }

    /// A constraint that fails or ends takes its choice with it, and no other.
    fn take_mask(&mut self, advanced: Advanced) {
        let key = advanced.choice;
        let choice = match self.running.binary_search_by_key(&key, |c| c.key) {
            Ok(place) => &mut self.running[place],
            // One that has ended meanwhile is nowhere.
            Err(_) => match self.waiting.binary_search_by_key(&key, |c| c.key) {
                Ok(place) => &mut self.waiting[place],
                Err(_) => return,
            },
        };
        choice.guard = Guard::None;
        match advanced.outcome {
            Ok(Some(constrained)) => choice.guard = Guard::Ready(constrained),
            Ok(None) => {
                let by = StopCause::Constraint;
                choice.finish = Some(FinishReason::Stop { by });
            }
            Err(error) => {
                let message = format!("the constraint failed: {error}");
                choice.finish = Some(FinishReason::Error(message));
            }
        }
    }
}

/// Until when a step waits for this choice's mask, where only that is missing for its next token.
fn patience_end(choice: &Choice, pager: &Pager) -> Option<Instant> {
    match choice.guard {
        Guard::Away(since) if choice.tokens.len() == pager.computed(sequence_of(choice)) + 1 => {
            Some(since + MASK_PATIENCE)
        }
        _ => None,
    }
}
