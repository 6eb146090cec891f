//! Owns the free list and reference counts of KV blocks. Knows no sequence and no device.

use mettle_plan::BlockId;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    references: u32,
    /// Its content is in the prefix index: worth keeping while free.
    has_content: bool,
    /// Neighbours in the free list, meaningful while free.
    before: u32,
    after: u32,
}

/// What a block is to the live view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockState {
    Free = 0,
    /// Free, and its content can still be found.
    Cached = 1,
    /// One sequence's.
    Used = 2,
    /// Several sequences'.
    Shared = 3,
}

/// Blocks with reference counts. The free list is a queue: blocks without content are taken first, then those with
/// content, least recently used first.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    front: u32,
    back: u32,
    free: usize,
    used: usize,
    /// Free blocks with content.
    cached: usize,
    /// Blocks with several owners.
    shared: usize,
}

impl BlockPool {
    pub fn new(total: usize) -> BlockPool {
        assert!(total < NONE as usize, "block ids are 32 bits wide");
        let block = Block {
            references: 0,
            has_content: false,
            before: NONE,
            after: NONE,
        };
        let mut pool = BlockPool {
            blocks: vec![block; total],
            front: NONE,
            back: NONE,
            free: 0,
            used: 0,
            cached: 0,
            shared: 0,
        };
        (0..total as u32).for_each(|id| pool.link_back(id));
        pool.free = total;
        pool
    }

    pub fn total(&self) -> usize {
        self.blocks.len()
    }

    pub fn free(&self) -> usize {
        self.free
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn cached(&self) -> usize {
        self.cached
    }

    pub fn shared(&self) -> usize {
        self.shared
    }

    /// Every block's state, by id.
    pub fn states(&self) -> impl Iterator<Item = BlockState> {
        self.blocks
            .iter()
            .map(|block| match (block.references, block.has_content) {
                (0, false) => BlockState::Free,
                (0, true) => BlockState::Cached,
                (1, _) => BlockState::Used,
                _ => BlockState::Shared,
            })
    }

    pub fn references(&self, id: BlockId) -> u32 {
        self.blocks[id.0 as usize].references
    }

    /// Takes the block least worth keeping, and whether it had content, which is hereby lost.
    pub fn take(&mut self) -> Option<(BlockId, bool)> {
        let id = self.front;
        if id == NONE {
            return None;
        }
        let had_content = self.blocks[id as usize].has_content;
        self.reuse(id);
        self.blocks[id as usize].has_content = false;
        Some((BlockId(id), had_content))
    }

    /// One more owner; a free block with content is in use again.
    pub fn share(&mut self, id: BlockId) {
        match self.references(id) {
            0 => self.reuse(id.0),
            owners => {
                self.blocks[id.0 as usize].references += 1;
                self.shared += usize::from(owners == 1);
            }
        }
    }

    /// One owner less; the last one gives the block back.
    pub fn release(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        assert!(block.references > 0, "{id:?} released by nobody's owner");
        block.references -= 1;
        if block.references > 0 {
            self.shared -= usize::from(block.references == 1);
            return;
        }
        if block.has_content {
            self.cached += 1;
            self.link_back(id.0);
        } else {
            self.link_front(id.0);
        }
        self.free += 1;
        self.used -= 1;
        self.check();
    }

    /// Says that a used block's content has entered the index.
    pub fn set_content(&mut self, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        assert!(block.references > 0, "{id:?} is free");
        block.has_content = true;
    }

    fn reuse(&mut self, id: u32) {
        self.unlink(id);
        let block = &mut self.blocks[id as usize];
        block.references = 1;
        self.cached -= usize::from(block.has_content);
        self.free -= 1;
        self.used += 1;
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.free + self.used, self.total());
    }

    fn link_back(&mut self, id: u32) {
        let last = self.back;
        self.blocks[id as usize].before = last;
        self.blocks[id as usize].after = NONE;
        match last {
            NONE => self.front = id,
            _ => self.blocks[last as usize].after = id,
        }
        self.back = id;
    }

    fn link_front(&mut self, id: u32) {
        let first = self.front;
        self.blocks[id as usize].before = NONE;
        self.blocks[id as usize].after = first;
        match first {
            NONE => self.back = id,
            _ => self.blocks[first as usize].before = id,
        }
        self.front = id;
    }

    fn unlink(&mut self, id: u32) {
        let Block { before, after, .. } = self.blocks[id as usize];
        match before {
            NONE => self.front = after,
            _ => self.blocks[before as usize].after = after,
        }
        match after {
            NONE => self.back = before,
            _ => self.blocks[after as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_without_content_go_first_then_the_least_recently_used() {
        let mut pool = BlockPool::new(4);
        let taken: Vec<BlockId> = (0..4).map(|_| pool.take().unwrap().0).collect();
        assert_eq!(pool.take(), None);
        pool.set_content(taken[1]);
        pool.set_content(taken[2]);
        for id in [taken[2], taken[0], taken[1]] {
            pool.release(id);
        }
        assert_eq!((pool.free(), pool.used(), pool.cached()), (3, 1, 2));
        // Used again and freed: now the most recent one.
        pool.share(taken[2]);
        pool.release(taken[2]);
        assert_eq!(pool.take(), Some((taken[0], false)));
        assert_eq!(pool.take(), Some((taken[1], true)));
        assert_eq!(pool.take(), Some((taken[2], true)));
        assert_eq!((pool.free(), pool.used(), pool.cached()), (0, 4, 0));
    }

    #[test]
    fn a_shared_block_is_free_only_after_its_last_owner() {
        let mut pool = BlockPool::new(1);
        let (id, _) = pool.take().unwrap();
        pool.share(id);
        pool.share(id);
        assert_eq!((pool.references(id), pool.shared()), (3, 1));
        assert_eq!(pool.states().collect::<Vec<_>>(), [BlockState::Shared]);
        pool.release(id);
        assert_eq!((pool.references(id), pool.shared()), (2, 1));
        pool.release(id);
        assert_eq!((pool.references(id), pool.free()), (1, 0));
        assert_eq!(
            (pool.shared(), pool.states().next()),
            (0, Some(BlockState::Used))
        );
        pool.set_content(id);
        pool.release(id);
        assert_eq!((pool.references(id), pool.free()), (0, 1));
        assert_eq!(pool.states().next(), Some(BlockState::Cached));
        pool.take();
        pool.release(id);
        assert_eq!(pool.states().next(), Some(BlockState::Free));
    }

    #[test]
    #[should_panic(expected = "released by nobody's owner")]
    fn releasing_a_free_block_is_a_bug() {
        let mut pool = BlockPool::new(1);
        pool.release(BlockId(0));
    }
}
