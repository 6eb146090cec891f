//! Owns the check of a step against what a plan was prepared with. Backends trust a checked step.

use crate::backend::BackendError;
use crate::dim::Sizes;
use crate::kv::{PageLayout, Retention};
use crate::step::{InputToken, StepInput};

/// What a step of a text model may ask for.
#[derive(Clone, Copy, Debug)]
pub struct StepLimits<'a> {
    pub plans: usize,
    /// The step's plan is an encoder's: its tokens go to the groups that keep an encoder's, and to no other.
    pub fills_encoder: bool,
    pub bounds: &'a Sizes,
    pub vocabulary: usize,
    pub kv_pages: usize,
    pub page_layout: &'a PageLayout,
}

impl StepInput {
    /// Lengths agree, sizes are within bounds, ids and pages exist, positions end at the context, and every page that a
    /// query may read or write is in its table.
    pub fn check(&self, limits: &StepLimits) -> Result<(), BackendError> {
        let bad = |what: String| Err(BackendError::BadStep(what));
        let sizes = self.sizes();
        if let Some(dim) = sizes.exceeds(limits.bounds) {
            return Err(BackendError::StepTooLarge {
                dim,
                size: sizes.get(dim),
                bound: limits.bounds.get(dim),
            });
        }
        if self.positions.len() != self.tokens.len()
            || self.query_start.len() != self.sequences() + 1
            || self.query_start.first() != Some(&0)
            || self.query_start.last() != Some(&(self.tokens.len() as u32))
            || self.tables.len() != limits.page_layout.groups.len()
        {
            return bad("its parts have different lengths".into());
        }
        if self.plan >= limits.plans {
            return bad(format!("plan {} of {}", self.plan, limits.plans));
        }
        for token in &self.tokens {
            if let InputToken::Host(id) = *token
                && id as usize >= limits.vocabulary
            {
                return bad(format!(
                    "token {id} of a vocabulary of {}",
                    limits.vocabulary
                ));
            }
        }
        for row in &self.logit_rows {
            if row.0 as usize >= self.tokens.len() {
                return bad(format!("output row {} of {}", row.0, self.tokens.len()));
            }
        }
        (0..self.sequences()).try_for_each(|sequence| self.check_sequence(sequence, limits))
    }

    fn check_sequence(&self, sequence: usize, limits: &StepLimits) -> Result<(), BackendError> {
        let bad = |what: String| {
            Err(BackendError::BadStep(format!(
                "sequence {sequence}: {what}"
            )))
        };
        let start = self.query_start[sequence] as usize;
        let end = self.query_start[sequence + 1] as usize;
        if start >= end || end > self.tokens.len() {
            return bad(format!("its tokens are {start}..{end}"));
        }
        let context = self.context_lens[sequence].0 as usize;
        let first = self.positions[start] as usize;
        let consecutive = (start..end).all(|i| self.positions[i] as usize == first + i - start);
        if !consecutive || first + end - start != context {
            return bad(format!(
                "its positions do not end at its context of {context}"
            ));
        }
        for (table, group) in self.tables.iter().zip(&limits.page_layout.groups) {
            if table.first_page.len() != self.sequences()
                || table.lens.len() != self.sequences()
                || table.starts.len() != self.sequences() + 1
            {
                return bad("its block table is missing".into());
            }
            let blocks = table.blocks_of(sequence);
            if let Some(block) = blocks.iter().find(|b| b.0 as usize >= limits.kv_pages) {
                return bad(format!("page {} of {}", block.0, limits.kv_pages));
            }
            let held = table.lens[sequence].0 as usize;
            let tokens = match group.retention {
                Retention::State => continue,
                Retention::Encoder if limits.fills_encoder && held != context => {
                    return bad(format!("{context} tokens to encode, room is for {held}"));
                }
                Retention::Encoder if held == 0 => return bad("nothing was encoded".into()),
                Retention::Encoder => held,
                _ if limits.fills_encoder => continue,
                _ => context,
            };
            let first_page = table.first_page[sequence] as usize;
            let pages = tokens.div_ceil(group.tokens_per_page);
            let least = match group.retention {
                Retention::Encoder => 0,
                _ => group.first_page(first),
            };
            if first_page > least || first_page + blocks.len() < pages {
                return bad(format!(
                    "its {} pages from page {first_page} do not hold {tokens} tokens",
                    blocks.len()
                ));
            }
        }
        Ok(())
    }
}
