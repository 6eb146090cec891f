//! Owns the map from the content of full blocks (all tokens up to the block's end) to the block that holds it.

use mettle_plan::BlockId;
use std::collections::HashMap;

/// The blake3 of everything up to the end of a block: the block's tokens and its parent's hash. A cryptographic hash,
/// because a forced collision would show one tenant another's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainHash([u8; 32]);

impl ChainHash {
    /// Where a chain starts: what must be equal besides the tokens for a block to be shared.
    pub fn root(salt: Option<&str>) -> ChainHash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"mettle prefix 1");
        if let Some(salt) = salt {
            // Without the marker an empty salt would equal none.
            hasher.update(&[1]);
            hasher.update(salt.as_bytes());
        }
        ChainHash(*hasher.finalize().as_bytes())
    }

    pub fn child(&self, tokens: &[u32]) -> ChainHash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        ChainHash(*hasher.finalize().as_bytes())
    }
}

/// Groups have blocks of their own for the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    group: u32,
    hash: ChainHash,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    parent: ChainHash,
    /// Tokens of the page; they lie in `PrefixIndex::tokens`.
    length: usize,
}

/// Which block holds which content. At most one block per content and one content per block.
#[derive(Debug)]
pub struct PrefixIndex {
    blocks: HashMap<Key, BlockId>,
    /// By block.
    entries: Vec<Option<Entry>>,
    /// The tokens of every block's page, `page_tokens` apart: indexing a page allocates nothing.
    tokens: Vec<u32>,
    page_tokens: usize,
}

impl PrefixIndex {
    /// For `total` blocks of at most `page_tokens` tokens.
    pub fn new(total: usize, page_tokens: usize) -> PrefixIndex {
        PrefixIndex {
            // Twice the room: a map at most half full clears its removed entries in place instead of growing.
            blocks: HashMap::with_capacity(2 * total),
            entries: vec![None; total],
            tokens: vec![0; total * page_tokens],
            page_tokens,
        }
    }

    /// The block of `group` whose content ends with `tokens` after `parent`, `hash` being the chain at its end. Equal
    /// hashes are not believed: the tokens themselves are compared.
    pub fn find(
        &self,
        group: usize,
        parent: ChainHash,
        hash: ChainHash,
        tokens: &[u32],
    ) -> Option<BlockId> {
        let group = group as u32;
        let block = *self.blocks.get(&Key { group, hash })?;
        let entry = self.entries[block.0 as usize].as_ref();
        let entry = entry.expect("the map names indexed blocks only");
        let start = block.0 as usize * self.page_tokens;
        let known = &self.tokens[start..start + entry.length];
        (entry.parent == parent && known == tokens).then_some(block)
    }

    /// Enters a block and says whether it is the one for its content now; an equal block may have come first.
    pub fn insert(
        &mut self,
        group: usize,
        parent: ChainHash,
        hash: ChainHash,
        tokens: &[u32],
        block: BlockId,
    ) -> bool {
        let group = group as u32;
        let key = Key { group, hash };
        if self.blocks.contains_key(&key) {
            return false;
        }
        let slot = &mut self.entries[block.0 as usize];
        assert!(slot.is_none(), "{block:?} is in the index already");
        *slot = Some(Entry {
            key,
            parent,
            length: tokens.len(),
        });
        let start = block.0 as usize * self.page_tokens;
        self.tokens[start..start + tokens.len()].copy_from_slice(tokens);
        self.blocks.insert(key, block);
        true
    }

    /// Forgets a block whose content is about to be overwritten.
    pub fn remove(&mut self, block: BlockId) {
        let entry = self.entries[block.0 as usize].take();
        let entry = entry.expect("only indexed blocks are removed");
        self.blocks.remove(&entry.key);
    }

    /// Blocks in the index.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(
        index: &PrefixIndex,
        group: usize,
        parent: ChainHash,
        tokens: &[u32],
    ) -> Option<BlockId> {
        index.find(group, parent, parent.child(tokens), tokens)
    }

    #[test]
    fn content_is_found_only_by_group_parent_salt_and_tokens() {
        let mut index = PrefixIndex::new(4, 3);
        let root = ChainHash::root(None);
        let tokens = [1, 2, 3];
        assert!(index.insert(0, root, root.child(&tokens), &tokens, BlockId(2)));
        assert_eq!(find(&index, 0, root, &tokens), Some(BlockId(2)));
        assert_eq!(find(&index, 1, root, &tokens), None);
        assert_eq!(find(&index, 0, root, &[1, 2, 4]), None);
        for salt in ["", "tenant"] {
            assert_eq!(find(&index, 0, ChainHash::root(Some(salt)), &tokens), None);
        }
        assert_eq!(find(&index, 0, root.child(&tokens), &tokens), None);
        // An equal block does not replace the first.
        assert!(!index.insert(0, root, root.child(&tokens), &tokens, BlockId(3)));
        index.remove(BlockId(2));
        assert_eq!((find(&index, 0, root, &tokens), index.count()), (None, 0));
    }

    #[test]
    fn equal_hashes_are_checked_against_the_tokens() {
        let mut index = PrefixIndex::new(1, 1);
        let root = ChainHash::root(None);
        let forged = root.child(&[7]);
        index.insert(0, root, forged, &[1], BlockId(0));
        assert_eq!(find(&index, 0, root, &[7]), None);
    }
}
