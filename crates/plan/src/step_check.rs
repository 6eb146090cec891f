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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::GroupPages;
    use crate::step::{BlockId, ContextLen, GroupTables, TokenRow};
    use expect_test::{Expect, expect};

    /// An encoder and a decoder, pages of four and eight tokens.
    fn layout() -> PageLayout {
        let group = |retention, tokens_per_page| GroupPages {
            retention,
            tokens_per_page,
            pages_per_state: 0,
        };
        PageLayout {
            page_bytes: 1,
            groups: vec![group(Retention::Full, 4), group(Retention::Encoder, 8)],
        }
    }

    /// One sequence of `tokens` from position `first` on, with so many pages of each group and an input so long.
    fn step(first: u32, tokens: u32, own: u32, encoders: u32, input: u32) -> StepInput {
        let mut step = StepInput::new(2);
        step.push_sequence((0..tokens).map(InputToken::Host), first);
        let pages = |count: u32| (0..count).map(BlockId).collect::<Vec<_>>();
        let len = ContextLen(first + tokens);
        step.tables[0].push(0, len, &pages(own));
        step.tables[1].push(0, ContextLen(input), &pages(encoders));
        step
    }

    fn check(fills_encoder: bool, step: &StepInput, expected: Expect) {
        let limits = StepLimits {
            plans: 2,
            fills_encoder,
            bounds: &Sizes::bounds(16, 2),
            vocabulary: 100,
            kv_pages: 10,
            page_layout: &layout(),
        };
        let text = match step.check(&limits) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn a_decoder_reads_what_was_encoded() {
        check(false, &step(4, 1, 2, 2, 9), expect!["fine"]);
        check(
            false,
            &step(4, 1, 2, 1, 9),
            expect![
                "the step is not well formed: sequence 0: its 1 pages from page 0 do not hold 9 tokens"
            ],
        );
        check(
            false,
            &step(4, 1, 1, 2, 9),
            expect![
                "the step is not well formed: sequence 0: its 1 pages from page 0 do not hold 5 tokens"
            ],
        );
        check(
            false,
            &step(4, 1, 2, 0, 0),
            expect!["the step is not well formed: sequence 0: nothing was encoded"],
        );
    }

    #[test]
    fn an_encoder_fills_its_own_pages_and_needs_no_others() {
        check(true, &step(0, 9, 0, 2, 9), expect!["fine"]);
        check(
            true,
            &step(0, 9, 0, 1, 9),
            expect![
                "the step is not well formed: sequence 0: its 1 pages from page 0 do not hold 9 tokens"
            ],
        );
        check(
            true,
            &step(0, 8, 0, 2, 9),
            expect!["the step is not well formed: sequence 0: 8 tokens to encode, room is for 9"],
        );
    }

    #[test]
    fn tables_rows_and_pages_that_do_not_exist_are_refused() {
        let mut missing = step(0, 1, 1, 1, 1);
        missing.tables[1] = GroupTables::default();
        check(
            false,
            &missing,
            expect!["the step is not well formed: sequence 0: its block table is missing"],
        );
        let mut row = step(0, 1, 1, 1, 1);
        row.logit_rows.push(TokenRow(1));
        check(
            false,
            &row,
            expect!["the step is not well formed: output row 1 of 1"],
        );
        check(
            false,
            &step(0, 1, 11, 1, 1),
            expect!["the step is not well formed: sequence 0: page 10 of 10"],
        );
    }
}
