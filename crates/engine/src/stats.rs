//! Owns the numbers that the worker publishes after each step and anybody may read.

use crate::pager::Pager;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A snapshot of the engine's numbers; each is exact, together they may be of two neighbouring steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub running: usize,
    pub waiting: usize,
    pub blocks_total: usize,
    pub blocks_used: usize,
    /// Free to take, those with cached content included.
    pub blocks_free: usize,
    /// Free blocks that still hold a prefix.
    pub blocks_cached: usize,
    pub steps: u64,
    /// Prompt tokens of admitted requests, those found in the cache included.
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    /// Tokens looked up in the prefix index, and tokens found.
    pub prefix_queries: u64,
    pub prefix_hits: u64,
}

#[derive(Debug, Default)]
pub(crate) struct SharedStats {
    pub running: AtomicUsize,
    /// Running, waiting, or on the way to the worker.
    pub live: AtomicUsize,
    pub blocks_total: AtomicUsize,
    pub blocks_free: AtomicUsize,
    pub blocks_cached: AtomicUsize,
    pub steps: AtomicU64,
    pub prompt_tokens: AtomicU64,
    pub generated_tokens: AtomicU64,
    pub prefix_queries: AtomicU64,
    pub prefix_hits: AtomicU64,
}

impl SharedStats {
    pub fn publish(&self, pager: &Pager) {
        let pool = pager.pool();
        self.blocks_free.store(pool.free(), Relaxed);
        self.blocks_cached.store(pool.cached(), Relaxed);
        let (queries, hits) = pager.prefix_queries_and_hits();
        self.prefix_queries.store(queries, Relaxed);
        self.prefix_hits.store(hits, Relaxed);
    }

    pub fn snapshot(&self) -> Stats {
        let blocks_total = self.blocks_total.load(Relaxed);
        let blocks_free = self.blocks_free.load(Relaxed);
        let running = self.running.load(Relaxed);
        Stats {
            running,
            waiting: self.live.load(Relaxed).saturating_sub(running),
            blocks_total,
            blocks_used: blocks_total - blocks_free,
            blocks_free,
            blocks_cached: self.blocks_cached.load(Relaxed),
            steps: self.steps.load(Relaxed),
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            generated_tokens: self.generated_tokens.load(Relaxed),
            prefix_queries: self.prefix_queries.load(Relaxed),
            prefix_hits: self.prefix_hits.load(Relaxed),
        }
    }
}
