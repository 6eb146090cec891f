//! Owns the search for the longest prefix of a prompt whose pages are cached in every group.

use super::prefix_index::{ChainHash, PrefixIndex};
use mettle_plan::{BlockId, GroupPages, PageLayout, Retention};

/// A prefix found in the index, with the pages of it that a sequence needs to go on from there.
pub(super) struct CachedPrefix {
    pub tokens: usize,
    pub groups: Vec<GroupPrefix>,
}

pub(super) struct GroupPrefix {
    /// Above 0 where a window has passed the pages before.
    pub first_page: usize,
    pub blocks: Vec<BlockId>,
    /// The hash at the prefix's end.
    pub chain: ChainHash,
}

impl CachedPrefix {
    /// `None` where nothing usable is cached. One token is always left to compute: its logits are what a request is
    /// about. A recurrent state knows no past, so a model that has one finds nothing.
    pub fn longest(
        index: &PrefixIndex,
        layout: &PageLayout,
        prompt: &[u32],
        root: ChainHash,
    ) -> Option<CachedPrefix> {
        let has_state = |g: &GroupPages| g.retention == Retention::State;
        if layout.groups.is_empty() || layout.groups.iter().any(has_state) {
            return None;
        }
        let common = layout.common_tokens();
        let longest = (prompt.len() - 1) / common * common;
        let groups = layout.groups.iter().enumerate();
        let pages: Vec<CachedPages> = groups
            .map(|(number, group)| {
                let pages = prompt[..longest].chunks_exact(group.tokens_per_page);
                CachedPages::find(index, number, root, pages)
            })
            .collect();
        let is_cached = |tokens: &usize| {
            let mut both = pages.iter().zip(&layout.groups);
            both.all(|(pages, group)| pages.suffice(group, *tokens))
        };
        let mut lengths = (1..=longest / common).rev().map(|n| n * common);
        let tokens = lengths.find(is_cached)?;
        let groups = pages.iter().zip(&layout.groups).map(|(pages, group)| {
            let (first_page, end) = (group.first_page(tokens), tokens / group.tokens_per_page);
            let found = pages.blocks[first_page..end].iter();
            GroupPrefix {
                first_page,
                blocks: found.map(|b| b.expect("the length was checked")).collect(),
                chain: pages.hashes[end - 1],
            }
        });
        Some(CachedPrefix {
            tokens,
            groups: groups.collect(),
        })
    }
}

/// What the index holds of a prompt in one group, page by page.
struct CachedPages {
    hashes: Vec<ChainHash>,
    blocks: Vec<Option<BlockId>>,
    /// Pages found without a gap up to and including this one.
    run: Vec<usize>,
}

impl CachedPages {
    fn find<'a>(
        index: &PrefixIndex,
        group: usize,
        root: ChainHash,
        pages: impl Iterator<Item = &'a [u32]>,
    ) -> CachedPages {
        let mut found = CachedPages {
            hashes: Vec::new(),
            blocks: Vec::new(),
            run: Vec::new(),
        };
        let mut parent = root;
        for page in pages {
            let hash = parent.child(page);
            let block = index.find(group, parent, hash, page);
            let before = found.run.last().copied().unwrap_or(0);
            found.run.push(block.map_or(0, |_| before + 1));
            found.blocks.push(block);
            found.hashes.push(hash);
            parent = hash;
        }
        found
    }

    /// Whether every page is there that a sequence of `tokens` tokens, full pages all, still needs.
    fn suffice(&self, group: &GroupPages, tokens: usize) -> bool {
        let (first, end) = (group.first_page(tokens), tokens / group.tokens_per_page);
        first >= end || self.run[end - 1] >= end - first
    }
}
