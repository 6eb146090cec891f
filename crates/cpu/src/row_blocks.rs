//! Owns keys and values of the step's own rows, for attention without a cache: laid out as pages are, so that the same
//! kernel reads them. Each layer writes its own over those of the layer before.

use crate::kv::{HeadOf, KvPool, TOKENS};
use crate::memory::Rows;
use crate::program::{Call, Kernel, KeysAndValues};
use crate::step::Tile;
use mettle_plan::{
    BackendError, BlockId, KvElement, KvGroup, KvLayer, PageLayout, Plane, Retention, Sizes,
    StepInput,
};

/// The only layer there is.
const KV: KvLayer = KvLayer { group: 0, layer: 0 };

pub struct RowBlocks {
    pool: KvPool,
    heads: usize,
    /// All pages, in order: a sequence has neighbours.
    pages: Vec<BlockId>,
    /// Where each sequence of the step starts in `pages`, and how many tokens it has.
    sequences: Vec<(usize, usize)>,
}

impl RowBlocks {
    /// Room for the largest step of a plan with such attention; None for other plans.
    pub fn for_calls<'a>(
        calls: impl Iterator<Item = &'a Call>,
        bounds: &Sizes,
    ) -> Result<Option<RowBlocks>, BackendError> {
        let mut shapes = calls.filter_map(|call| match call.kernel {
            Kernel::Attention {
                kv: KeysAndValues::Rows { .. },
                kv_heads,
                head_dim,
                ..
            } => Some((kv_heads, head_dim)),
            _ => None,
        });
        let Some((heads, width)) = shapes.next() else {
            return Ok(None);
        };
        if let Some((other_heads, other_width)) = shapes.find(|s| *s != (heads, width)) {
            return Err(BackendError::Unsupported {
                backend: "cpu",
                what: format!(
                    "attention without a cache of {heads} heads of {width} in one layer and {other_heads} of {other_width} \
                     in another"
                ),
            });
        }
        RowBlocks::new(heads, width, bounds).map(Some)
    }

    pub fn new(heads: usize, width: usize, bounds: &Sizes) -> Result<RowBlocks, BackendError> {
        let plane = Plane {
            heads,
            width,
            element: KvElement::F32,
        };
        let groups = [KvGroup {
            name: "rows".into(),
            layers: 1,
            planes: vec![plane, plane],
            retention: Retention::Full,
        }];
        // Every sequence may leave its last page nearly empty.
        let pages = bounds.tokens / TOKENS + bounds.sequences;
        Ok(RowBlocks {
            pool: KvPool::new(&groups, &PageLayout::new(&groups, TOKENS), pages)?,
            heads,
            pages: (0..pages as u32).map(BlockId).collect(),
            sequences: Vec::with_capacity(bounds.sequences),
        })
    }

    pub fn bytes(&self) -> usize {
        self.pool.bytes()
    }

    pub fn pool(&self) -> &KvPool {
        &self.pool
    }

    pub fn head(&self, head: usize) -> HeadOf {
        HeadOf { kv: KV, head }
    }

    /// Deals out the pages for a step that was checked against the bounds.
    pub fn prepare(&mut self, step: &StepInput) -> Result<(), BackendError> {
        self.sequences.clear();
        let mut start = 0;
        for sequence in 0..step.sequences() {
            let (tokens, context) = (step.query_len(sequence).0, step.context_lens[sequence].0);
            if tokens != context {
                return Err(BackendError::BadStep(format!(
                    "sequence {sequence}: {tokens} of its {context} tokens, and no cache holds the others"
                )));
            }
            self.sequences.push((start, tokens as usize));
            start += (tokens as usize).div_ceil(TOKENS);
        }
        Ok(())
    }

    pub fn pages_of(&self, sequence: usize) -> &[BlockId] {
        let (start, tokens) = self.sequences[sequence];
        &self.pages[start..start + tokens.div_ceil(TOKENS)]
    }

    pub fn tokens_of(&self, sequence: usize) -> usize {
        self.sequences[sequence].1
    }

    /// Takes over the rows of a tile.
    ///
    /// # Safety
    /// The rows exist and nobody writes them; no other thread touches the places of this tile meanwhile.
    pub unsafe fn write(&self, tile: Tile, k: Rows, v: Rows) {
        let (pages, width) = (self.pages_of(tile.sequence), k.width / self.heads);
        for token in 0..tile.tokens {
            let position = tile.position + token;
            let (page, place) = (pages[position / TOKENS], position % TOKENS);
            // SAFETY: the caller's promise.
            let (k, v) = unsafe { (k.row(tile.row + token), v.row(tile.row + token)) };
            for head in 0..self.heads {
                let columns = head * width..(head + 1) * width;
                let (key, value) = (&k[columns.clone()], &v[columns]);
                // SAFETY: as above.
                unsafe { self.pool.write(self.head(head), page, place, key, value) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
