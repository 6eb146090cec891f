//! Owns which tokens of a block the rows of a tile see.

use crate::kv::TOKENS;
use std::ops::Range;

#[derive(Clone, Copy)]
pub struct Sight {
    /// Of the first query.
    pub position: usize,
    /// Rows of a token: the query heads that share a KV head.
    pub heads: usize,
    /// One past the last position, where every query sees them all.
    pub whole_context: Option<usize>,
    /// Tokens that a query sees, its own included.
    pub window: usize,
}

impl Sight {
    /// The positions that a row sees.
    #[inline(always)]
    fn seen(&self, row: usize) -> Range<usize> {
        let causal = self.position + row / self.heads + 1;
        let end = self.whole_context.unwrap_or(causal);
        end.saturating_sub(self.window)..end
    }

    /// The tokens that a row sees of the block at a position. None are an empty range inside of it.
    #[inline(always)]
    pub fn visible(&self, row: usize, block: usize) -> Range<usize> {
        let seen = self.seen(row);
        let end = seen.end.saturating_sub(block).min(TOKENS);
        seen.start.saturating_sub(block).min(end)..end
    }

    /// Whether each of some rows sees the whole block, as nearly all do in a long context.
    pub fn sees_all(&self, rows: Range<usize>, block: usize) -> bool {
        // Later rows see further, and their windows start later.
        self.visible(rows.start, block).end == TOKENS
            && self.visible(rows.end - 1, block).start == 0
    }

    /// The positions that some of these rows see.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "only AVX-512 takes rows through several blocks")
    )]
    pub fn positions(&self, rows: Range<usize>) -> Range<usize> {
        self.seen(rows.start).start..self.seen(rows.end - 1).end
    }

    /// The head and the position of a row's query.
    #[inline(always)]
    pub fn query(&self, row: usize) -> (usize, usize) {
        (row % self.heads, self.position + row / self.heads)
    }

    /// The rows that see a token of the block, of so many: early ones may come before it, late ones' windows may start behind it.
    pub fn rows(&self, block: usize, rows: usize) -> Range<usize> {
        if self.whole_context.is_some() {
            return 0..rows;
        }
        let first = block.saturating_sub(self.position);
        let end = (block + TOKENS - 1).saturating_add(self.window) - self.position;
        first * self.heads..rows.min(end.saturating_mul(self.heads))
    }
}
