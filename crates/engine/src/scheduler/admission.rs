//! Owns when a waiting choice may run: a place is free, and its tokens fit in the pool together with all that the
//! running ones have under way.

use super::{Scheduler, sequence_of};
use crate::choice::Choice;
use crate::pager::{ChainHash, Pager};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Scheduler {
    /// Lets the first waiting choice run and gives its place, or `None` where it must wait. None overtakes it.
    pub(super) fn admit(&mut self, pager: &mut Pager, now: Instant) -> Option<usize> {
        if self.running.len() >= self.options.budget.sequences {
            return None;
        }
        let next = self.waiting.front()?;
        let wanted = self.pages_at_most(next);
        let promised = self.promised_pages(pager);
        let free = pager.pool().free();
        let fits = self.running.is_empty() || wanted + promised <= free;
        let shares = next.reads_cache() && pager.has_prefix_cache();
        let state = (next.key, free, promised);
        if !fits && (!shares || self.turned_away == Some(state)) {
            return None;
        }
        let salt = next.job.request.cache_salt.as_deref();
        let root = ChainHash::root(salt);
        let capacity = next.cached_at_most();
        let input = next.job.encoder_input().len();
        let sequence = pager.begin(&next.tokens, root, next.reads_cache(), capacity, input);
        // What it shares with running choices it need not take.
        let missing = wanted.saturating_sub(pager.held(sequence));
        if !fits && missing + promised > pager.pool().free() {
            pager.free(sequence);
            self.turned_away = Some(state);
            return None;
        }
        self.turned_away = None;
        let cached = pager.computed(sequence);
        let mut choice = self.waiting.pop_front().expect("it was just seen");
        if choice.admit(sequence, cached, now, self.options.vocabulary) {
            let length = choice.prompt_len() as u64;
            self.stats.prompt_tokens.fetch_add(length, Relaxed);
            if shares {
                self.stats.prefix_queries.fetch_add(length, Relaxed);
                self.stats.prefix_hits.fetch_add(cached as u64, Relaxed);
            }
        }
        Some(self.run(choice))
    }

    /// Pages that the running choices still need for the tokens they have and the next one.
    fn promised_pages(&self, pager: &Pager) -> usize {
        let of_choice = |choice: &Choice| {
            let wanted = self.pages_at_most(choice);
            wanted.saturating_sub(pager.held(sequence_of(choice)))
        };
        self.running.iter().map(of_choice).sum()
    }

    fn pages_at_most(&self, choice: &Choice) -> usize {
        let input = choice.job.encoder_input().len();
        let footprint = &self.options.footprint;
        footprint.pages_at_most(choice.next_length(), input)
    }
}
