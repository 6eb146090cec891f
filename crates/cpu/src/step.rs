//! Owns one step as the kernels see it: checked, with slots and query tiles worked out once.

use crate::kernels::attention::{SMALL_TILE, TILE};
use crate::kv::KvPool;
use mettle_plan::{BackendError, BlockId, InputToken, Retention, Sizes, StepInput, StepLimits};

/// Tokens of a sequence from which on they make tiles enough for all threads.
const MANY_TOKENS: usize = 4 * TILE;

/// Memory for the derived numbers of a step, reused from step to step.
pub struct StepState {
    pub token_ids: Vec<u32>,
    pub positions: Vec<u32>,
    pub logit_rows: Vec<u32>,
    /// Per group and token: the page and the place in it where the token's keys and values go. Empty for groups that the step
    /// does not write.
    pub slots: Vec<Vec<(BlockId, u32)>>,
    pub tiles: Vec<Tile>,
    /// Of these, what reaches from the first to the last logit row in each.
    pub logit_tiles: Vec<Tile>,
    /// Tokens of the longest tile.
    pub longest_tile: usize,
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
        let most_tiles = bounds.tokens / SMALL_TILE + bounds.sequences + 1;
        StepState {
            token_ids: Vec::with_capacity(bounds.tokens),
            positions: Vec::with_capacity(bounds.tokens),
            logit_rows: Vec::with_capacity(bounds.logit_rows),
            slots: (0..groups)
                .map(|_| Vec::with_capacity(bounds.tokens))
                .collect(),
            tiles: Vec::with_capacity(most_tiles),
            logit_tiles: Vec::with_capacity(most_tiles),
            longest_tile: 0,
        }
    }

    /// Checks a step against the bounds and the pool, and derives slots and tiles. No kernel checks again.
    pub fn prepare(
        &mut self,
        step: &StepInput,
        limits: &StepLimits,
        pool: &KvPool,
    ) -> Result<(), BackendError> {
        step.check(limits)?;
        let bad = |what: String| Err(BackendError::BadStep(what));
        if let Some(extra) = step.extras.first() {
            return bad(format!("no op here reads input buffer {}", extra.buffer.0));
        }
        self.token_ids.clear();
        for token in &step.tokens {
            match *token {
                InputToken::Host(id) => self.token_ids.push(id),
                InputToken::SampledBy(..) => {
                    return bad("it takes a token that the device sampled".into());
                }
            }
        }
        self.positions.clear();
        self.positions.extend_from_slice(&step.positions);
        self.logit_rows.clear();
        self.logit_rows.extend(step.logit_rows.iter().map(|r| r.0));
        self.tiles.clear();
        self.slots.iter_mut().for_each(Vec::clear);
        for sequence in 0..step.sequences() {
            self.add_sequence(step, sequence, limits, pool);
        }
        self.longest_tile = self.tiles.iter().map(|t| t.tokens).max().unwrap_or(0);
        self.find_logit_tiles();
        Ok(())
    }

    fn find_logit_tiles(&mut self) {
        self.logit_tiles.clear();
        self.logit_tiles.extend_from_slice(&self.tiles);
        if self.logit_rows.len() == self.positions.len() {
            return;
        }
        self.logit_tiles.iter_mut().for_each(|tile| tile.tokens = 0);
        for row in &self.logit_rows {
            let row = *row as usize;
            let index = self.tiles.partition_point(|t| t.row + t.tokens <= row);
            let (whole, wanted) = (&self.tiles[index], &mut self.logit_tiles[index]);
            let (first, end) = match wanted.tokens {
                0 => (row, row + 1),
                tokens => (wanted.row.min(row), (wanted.row + tokens).max(row + 1)),
            };
            *wanted = Tile {
                row: first,
                position: whole.position + first - whole.row,
                tokens: end - first,
                ..*whole
            };
        }
        self.logit_tiles.retain(|tile| tile.tokens > 0);
    }

    fn add_sequence(
        &mut self,
        step: &StepInput,
        sequence: usize,
        limits: &StepLimits,
        pool: &KvPool,
    ) {
        let start = step.query_start[sequence] as usize;
        let end = step.query_start[sequence + 1] as usize;
        let context = step.context_lens[sequence].0 as usize;
        let first = step.positions[start] as usize;
        for (group, slots) in self.slots.iter_mut().enumerate() {
            let retention = limits.page_layout.groups[group].retention;
            if limits.fills_encoder != (retention == Retention::Encoder) {
                continue;
            }
            let table = &step.tables[group];
            let (blocks, first_page) = (table.blocks_of(sequence), table.first_page[sequence]);
            let tokens_per_page = pool.tokens_per_page(group);
            slots.extend((first..context).map(|position| {
                let block = blocks[position / tokens_per_page - first_page as usize];
                (block, (position % tokens_per_page) as u32)
            }));
        }
        let tile = match end - start >= MANY_TOKENS {
            true => TILE,
            false => SMALL_TILE,
        };
        for row in (start..end).step_by(tile) {
            self.tiles.push(Tile {
                sequence,
                row,
                position: first + row - start,
                tokens: tile.min(end - row),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of two sequences' tiles of up to four tokens where only these rows' outputs are wanted.
    fn logit_tiles(wanted: &[u32]) -> Vec<(usize, usize, usize, usize)> {
        let mut state = StepState::new(&Sizes::bounds(11, 2), 1);
        state.positions = vec![0; 11];
        state.logit_rows = wanted.to_vec();
        let tile = |sequence, row, position, tokens| Tile {
            sequence,
            row,
            position,
            tokens,
        };
        state.tiles = vec![
            tile(0, 0, 20, 4),
            tile(0, 4, 24, 2),
            tile(1, 6, 0, 4),
            tile(1, 10, 4, 1),
        ];
        state.find_logit_tiles();
        let tiles = state.logit_tiles.iter();
        tiles
            .map(|t| (t.sequence, t.row, t.position, t.tokens))
            .collect()
    }

    #[test]
    fn tiles_reach_from_the_first_to_the_last_wanted_row() {
        assert_eq!(logit_tiles(&[]), []);
        assert_eq!(logit_tiles(&[0]), [(0, 0, 20, 1)]);
        assert_eq!(logit_tiles(&[10]), [(1, 10, 4, 1)]);
        // In any order, with gaps, twice the same.
        assert_eq!(logit_tiles(&[3, 1, 3]), [(0, 1, 21, 3)]);
        assert_eq!(logit_tiles(&[5, 9, 7]), [(0, 5, 25, 1), (1, 7, 1, 3)]);
        let all: Vec<u32> = (0..11).collect();
        let whole = [(0, 0, 20, 4), (0, 4, 24, 2), (1, 6, 0, 4), (1, 10, 4, 1)];
        assert_eq!(logit_tiles(&all), whole);
        assert_eq!(logit_tiles(&all[..10]), whole[..3]);
    }
}
