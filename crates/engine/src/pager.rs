//! Owns the pages of all sequences: the only allocator of KV memory. Knows no request and no device.
//!
//! A sequence has one block table per KV group. Between steps each table holds exactly the pages from the first one
//! that the next token still sees to the one of the last computed token; `grow` adds those that a step will write.

mod block_pool;
mod cached_prefix;
mod footprint;
mod prefix_index;
#[cfg(test)]
mod tests;

pub use block_pool::{BlockPool, BlockState};
pub use footprint::Footprint;
pub use prefix_index::{ChainHash, PrefixIndex};

use cached_prefix::CachedPrefix;
use mettle_plan::{BlockId, ContextLen, GroupPages, GroupTables, PageLayout, Retention};

/// Names a sequence of one pager until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceId(u32);

/// `grow` needed more blocks than were free; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBlocks {
    pub needed: usize,
    pub free: usize,
}

/// The pages of one sequence in one group.
#[derive(Clone, Debug)]
struct Table {
    /// Page number of `blocks[0]`.
    first_page: usize,
    blocks: Vec<BlockId>,
    /// Full pages whose content was offered to the index, and the hash at their end.
    indexed: usize,
    chain: ChainHash,
}

#[derive(Clone, Debug)]
struct Sequence {
    tables: Vec<Table>,
    computed: usize,
    /// Tokens the tables have room for; above `computed` only during a step.
    grown: usize,
    /// Tokens of its encoder's input; 0 where there is no encoder.
    input: usize,
    /// The input's keys and values are in the cache.
    is_encoded: bool,
}

#[derive(Debug)]
pub struct Pager {
    layout: PageLayout,
    pool: BlockPool,
    index: PrefixIndex,
    /// False: the index stays empty and is never asked.
    prefix_cache: bool,
    sequences: Vec<Option<Sequence>>,
}

impl Pager {
    /// Without `prefix_cache` no sequence finds what another one computed.
    pub fn new(layout: PageLayout, total_pages: usize, prefix_cache: bool) -> Pager {
        let common = layout.common_tokens();
        for group in &layout.groups {
            let fits = match group.retention {
                Retention::State => group.pages_per_state > 0,
                Retention::Window(0) => false,
                _ => group.tokens_per_page > 0 && common.is_multiple_of(group.tokens_per_page),
            };
            assert!(
                fits,
                "{group:?} cannot be paged: pages of all groups meet at {common} tokens"
            );
        }
        Pager {
            layout,
            pool: BlockPool::new(total_pages),
            index: PrefixIndex::new(if prefix_cache { total_pages } else { 0 }, common),
            prefix_cache,
            sequences: Vec::new(),
        }
    }

    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Whether sequences may find what others computed.
    pub fn has_prefix_cache(&self) -> bool {
        self.prefix_cache
    }

    /// Pages that the sequence holds, shared ones included.
    pub fn held(&self, id: SequenceId) -> usize {
        let tables = self.sequence(id).tables.iter();
        tables.map(|table| table.blocks.len()).sum()
    }

    /// A new sequence that owns the longest indexed prefix of `prompt` valid in every group; `computed` says how long
    /// that is, at most one token less than the prompt. Without `read_index` nothing is looked up.
    /// `capacity` is the length up to which growing shall not allocate host memory, `input` the tokens that an encoder has to
    /// read first.
    pub fn begin(
        &mut self,
        prompt: &[u32],
        root: ChainHash,
        read_index: bool,
        capacity: usize,
        input: usize,
    ) -> SequenceId {
        let tables = self.layout.groups.iter().map(|group| Table {
            first_page: 0,
            blocks: Vec::with_capacity(block_capacity(group, capacity, input)),
            indexed: 0,
            chain: root,
        });
        let mut sequence = Sequence {
            tables: tables.collect(),
            computed: 0,
            grown: 0,
            input,
            is_encoded: input == 0,
        };
        if read_index && self.prefix_cache {
            self.adopt_prefix(&mut sequence, prompt, root);
        }
        self.add(sequence)
    }

    /// Tokens of the sequence whose cache is complete.
    pub fn computed(&self, id: SequenceId) -> usize {
        self.sequence(id).computed
    }

    /// Whether an encoder has read the sequence's input, if it has one.
    pub fn is_encoded(&self, id: SequenceId) -> bool {
        self.sequence(id).is_encoded
    }

    /// Takes note that the encoder's step has filled the input's pages.
    pub fn commit_encoded(&mut self, id: SequenceId) {
        let sequence = self.sequences[id.0 as usize].as_mut().expect("a live id");
        sequence.is_encoded = true;
    }

    /// Makes room for `tokens` tokens, for the encoder's input, and unique ownership of every page that computing them writes. Page copies that
    /// must run before the step are added to `copies` (source, target).
    pub fn grow(
        &mut self,
        id: SequenceId,
        tokens: usize,
        copies: &mut Vec<(BlockId, BlockId)>,
    ) -> Result<(), OutOfBlocks> {
        let sequence = self.sequences[id.0 as usize].as_mut().expect("a live id");
        assert!(tokens >= sequence.grown, "a sequence grows");
        let mut needed = 0;
        for (table, group) in sequence.tables.iter().zip(&self.layout.groups) {
            needed += table.missing(group, tokens, sequence.input);
            needed += table.blocks[table.first_written(group, sequence.computed)..]
                .iter()
                .filter(|block| self.pool.references(**block) > 1)
                .count();
        }
        let free = self.pool.free();
        if needed > free {
            return Err(OutOfBlocks { needed, free });
        }
        for (table, group) in sequence.tables.iter_mut().zip(&self.layout.groups) {
            let held = table.blocks.len();
            for _ in 0..table.missing(group, tokens, sequence.input) {
                table.blocks.push(take(&mut self.pool, &mut self.index));
            }
            let first = table.first_written(group, sequence.computed);
            for block in table.blocks[..held].iter_mut().skip(first) {
                if self.pool.references(*block) > 1 {
                    let copy = take(&mut self.pool, &mut self.index);
                    self.pool.release(*block);
                    copies.push((*block, copy));
                    *block = copy;
                }
            }
        }
        sequence.grown = tokens;
        Ok(())
    }

    /// Takes note that the first `computed` of `tokens` are in the cache: full pages enter the index, pages out of every
    /// window and room that was not used go back.
    pub fn commit(&mut self, id: SequenceId, tokens: &[u32], computed: usize) {
        let sequence = self.sequences[id.0 as usize].as_mut().expect("a live id");
        assert!(
            (sequence.computed..=sequence.grown).contains(&computed),
            "{computed} tokens committed, {} were computed and there is room for {}",
            sequence.computed,
            sequence.grown
        );
        for (number, group) in self.layout.groups.iter().enumerate() {
            if matches!(group.retention, Retention::State | Retention::Encoder) {
                continue;
            }
            let table = &mut sequence.tables[number];
            while self.prefix_cache && (table.indexed + 1) * group.tokens_per_page <= computed {
                let start = table.indexed * group.tokens_per_page;
                let page = &tokens[start..start + group.tokens_per_page];
                let block = table.blocks[table.indexed - table.first_page];
                let hash = table.chain.child(page);
                if self.index.insert(number, table.chain, hash, page, block) {
                    self.pool.set_content(block);
                }
                table.chain = hash;
                table.indexed += 1;
            }
            let first = group.first_page(computed);
            let end = computed.div_ceil(group.tokens_per_page);
            for block in table.blocks.drain(end - table.first_page..) {
                self.pool.release(block);
            }
            for block in table.blocks.drain(..first - table.first_page) {
                self.pool.release(block);
            }
            table.first_page = first;
        }
        sequence.computed = computed;
        sequence.grown = computed;
    }

    /// A second sequence with the same computed tokens that shares all pages; `capacity` as in `begin`. Only between
    /// steps.
    pub fn fork(&mut self, id: SequenceId, capacity: usize) -> SequenceId {
        let mut sequence = self.sequence(id).clone();
        assert_eq!(
            sequence.computed, sequence.grown,
            "a fork in the middle of a step would share pages that are being written"
        );
        for (table, group) in sequence.tables.iter_mut().zip(&self.layout.groups) {
            table.blocks.iter().for_each(|b| self.pool.share(*b));
            let wanted = block_capacity(group, capacity, sequence.input);
            table
                .blocks
                .reserve_exact(wanted.saturating_sub(table.blocks.len()));
        }
        self.add(sequence)
    }

    /// Gives all pages back. Indexed content stays findable until its block is taken, the end of a prefix first.
    pub fn free(&mut self, id: SequenceId) {
        let sequence = self.sequences[id.0 as usize].take().expect("a live id");
        for table in &sequence.tables {
            for block in table.blocks.iter().rev() {
                self.pool.release(*block);
            }
        }
    }

    /// Pushes the sequence's pages that a step of up to `context` tokens reads and writes, one table per group.
    pub fn push_tables(&self, id: SequenceId, context: usize, tables: &mut [GroupTables]) {
        let sequence = self.sequence(id);
        assert!(context <= sequence.grown, "the step exceeds its room");
        let groups = self.layout.groups.iter().zip(&sequence.tables);
        for ((group, table), out) in groups.zip(tables) {
            let pages = match group.retention {
                Retention::State => group.pages_per_state,
                Retention::Encoder => table.blocks.len(),
                _ => context.div_ceil(group.tokens_per_page) - table.first_page,
            };
            let len = match group.retention {
                Retention::Encoder => sequence.input,
                _ => context,
            };
            let len = ContextLen(len as u32);
            out.push(table.first_page as u32, len, &table.blocks[..pages]);
        }
    }

    fn sequence(&self, id: SequenceId) -> &Sequence {
        self.sequences[id.0 as usize].as_ref().expect("a live id")
    }

    fn add(&mut self, sequence: Sequence) -> SequenceId {
        let vacant = self.sequences.iter().position(Option::is_none);
        let place = vacant.unwrap_or_else(|| {
            self.sequences.push(None);
            self.sequences.len() - 1
        });
        self.sequences[place] = Some(sequence);
        SequenceId(place as u32)
    }

    fn adopt_prefix(&mut self, sequence: &mut Sequence, prompt: &[u32], root: ChainHash) {
        let Some(found) = CachedPrefix::longest(&self.index, &self.layout, prompt, root) else {
            return;
        };
        for (table, part) in sequence.tables.iter_mut().zip(&found.groups) {
            for &block in &part.blocks {
                self.pool.share(block);
                table.blocks.push(block);
            }
            table.first_page = part.first_page;
            table.indexed = part.first_page + part.blocks.len();
            table.chain = part.chain;
        }
        sequence.computed = found.tokens;
        sequence.grown = found.tokens;
    }
}

impl Table {
    /// Blocks to add so that `tokens` tokens and an encoder's `input` have room.
    fn missing(&self, group: &GroupPages, tokens: usize, input: usize) -> usize {
        let pages = match group.retention {
            Retention::Encoder => input.div_ceil(group.tokens_per_page),
            Retention::State if tokens == 0 => 0,
            Retention::State => group.pages_per_state,
            _ => tokens.div_ceil(group.tokens_per_page) - self.first_page,
        };
        pages - self.blocks.len()
    }

    /// Where the blocks start that computing the token at `computed` and later ones writes; a state is written whole, and an
    /// encoder's input once, before anyone shares it.
    fn first_written(&self, group: &GroupPages, computed: usize) -> usize {
        match group.retention {
            Retention::Encoder => self.blocks.len(),
            Retention::State => 0,
            _ => (computed / group.tokens_per_page - self.first_page).min(self.blocks.len()),
        }
    }
}

/// Blocks that a table of up to `tokens` tokens holds at the most.
fn block_capacity(group: &GroupPages, tokens: usize, input: usize) -> usize {
    match group.retention {
        Retention::Encoder => input.div_ceil(group.tokens_per_page),
        Retention::State => group.pages_per_state,
        _ => tokens.div_ceil(group.tokens_per_page),
    }
}

/// Takes a block; what it held is no longer findable.
fn take(pool: &mut BlockPool, index: &mut PrefixIndex) -> BlockId {
    let (block, had_content) = pool.take().expect("the count of free blocks was checked");
    if had_content {
        index.remove(block);
    }
    block
}
