//! Owns one step as the kernels see it: checked, with slots and query tiles worked out once.

use crate::kernels::attention::TILE;
use crate::kv::KvPool;
use mettle_plan::{BackendError, BlockId, InputToken, Sizes, StepInput};

/// Memory for the derived numbers of a step, reused from step to step.
pub struct StepState {
    pub token_ids: Vec<u32>,
    pub positions: Vec<u32>,
    pub logit_rows: Vec<u32>,
    /// Per group and token: the page and the place in it where the token's keys and values go.
    pub slots: Vec<Vec<(BlockId, u32)>>,
    pub tiles: Vec<Tile>,
}

/// Neighbouring query tokens of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub sequence: usize,
    pub row: usize,
    pub position: usize,
    pub tokens: usize,
}

impl StepState {
    pub fn new(bounds: &Sizes, groups: usize) -> StepState {
        StepState {
            token_ids: Vec::with_capacity(bounds.tokens),
            positions: Vec::with_capacity(bounds.tokens),
            logit_rows: Vec::with_capacity(bounds.logit_rows),
            slots: (0..groups)
                .map(|_| Vec::with_capacity(bounds.tokens))
                .collect(),
            tiles: Vec::with_capacity(bounds.tokens / TILE + bounds.sequences + 1),
        }
    }

    /// Checks a step against the bounds and the pool, and derives slots and tiles. No kernel checks again.
    pub fn prepare(
        &mut self,
        step: &StepInput,
        bounds: &Sizes,
        vocabulary: usize,
        pool: &KvPool,
    ) -> Result<(), BackendError> {
        let bad = |what: String| Err(BackendError::BadStep(what));
        let sizes = step.sizes();
        if let Some(dim) = sizes.exceeds(bounds) {
            return Err(BackendError::StepTooLarge {
                dim,
                size: sizes.get(dim),
                bound: bounds.get(dim),
            });
        }
        if step.positions.len() != step.tokens.len()
            || step.query_start.len() != step.sequences() + 1
            || step.query_start.first() != Some(&0)
            || step.query_start.last() != Some(&(step.tokens.len() as u32))
            || step.tables.len() != self.slots.len()
        {
            return bad("its parts have different lengths".into());
        }
        if step.plan != 0 {
            return bad(format!("plan {} of 1", step.plan));
        }
        if let Some(extra) = step.extras.first() {
            return bad(format!("no op here reads input buffer {}", extra.buffer.0));
        }
        self.token_ids.clear();
        for token in &step.tokens {
            match *token {
                InputToken::Host(id) if (id as usize) < vocabulary => self.token_ids.push(id),
                InputToken::Host(id) => {
                    return bad(format!("token {id} of a vocabulary of {vocabulary}"));
                }
                InputToken::SampledBy(..) => {
                    return bad("it takes a token that the device sampled".into());
                }
            }
        }
        self.positions.clear();
        self.positions.extend_from_slice(&step.positions);
        self.logit_rows.clear();
        for row in &step.logit_rows {
            if row.0 as usize >= step.tokens.len() {
                return bad(format!("output row {} of {}", row.0, step.tokens.len()));
            }
            self.logit_rows.push(row.0);
        }
        self.tiles.clear();
        self.slots.iter_mut().for_each(Vec::clear);
        for sequence in 0..step.sequences() {
            self.add_sequence(step, sequence, pool)?;
        }
        Ok(())
    }

    fn add_sequence(
        &mut self,
        step: &StepInput,
        sequence: usize,
        pool: &KvPool,
    ) -> Result<(), BackendError> {
        let bad = |what: String| {
            Err(BackendError::BadStep(format!(
                "sequence {sequence}: {what}"
            )))
        };
        let start = step.query_start[sequence] as usize;
        let end = step.query_start[sequence + 1] as usize;
        if start >= end || end > step.tokens.len() {
            return bad(format!("its tokens are {start}..{end}"));
        }
        let context = step.context_lens[sequence].0 as usize;
        let first = step.positions[start] as usize;
        let consecutive = (start..end).all(|i| step.positions[i] as usize == first + i - start);
        if !consecutive || first + end - start != context {
            return bad(format!(
                "its positions do not end at its context of {context}"
            ));
        }
        for (group, slots) in self.slots.iter_mut().enumerate() {
            let table = &step.tables[group];
            if table.first_page.len() != step.sequences()
                || table.starts.len() != step.sequences() + 1
            {
                return bad("its block table is missing".into());
            }
            let blocks = table.blocks_of(sequence);
            let first_page = table.first_page[sequence] as usize;
            let tokens_per_page = pool.tokens_per_page(group);
            let pages = context.div_ceil(tokens_per_page);
            if first_page != 0 || blocks.len() < pages {
                return bad(format!(
                    "its {} pages from page {first_page} do not hold {context} tokens",
                    blocks.len()
                ));
            }
            if let Some(block) = blocks.iter().find(|b| b.0 as usize >= pool.pages()) {
                return bad(format!("page {} of {}", block.0, pool.pages()));
            }
            slots.extend((first..context).map(|position| {
                let block = blocks[position / tokens_per_page];
                (block, (position % tokens_per_page) as u32)
            }));
        }
        for row in (start..end).step_by(TILE) {
            self.tiles.push(Tile {
                sequence,
                row,
                position: first + row - start,
                tokens: TILE.min(end - row),
            });
        }
        Ok(())
    }
}
