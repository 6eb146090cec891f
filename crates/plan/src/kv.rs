//! Owns the shape of the KV cache: groups of layers, their planes, how long they are kept, and the size of a page.
//! Knows no sequence (the pager does) and no layout inside a page (the backend does).

use serde::Serialize;

/// Element type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvElement {
    F16,
    F32,
}

impl KvElement {
    pub const fn bytes(self) -> usize {
        match self {
            KvElement::F16 => 2,
            KvElement::F32 => 4,
        }
    }
}

/// One cached vector per token (or per sequence, for `Retention::State`) and head, e.g. the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Plane {
    pub heads: usize,
    pub width: usize,
    pub element: KvElement,
}

impl Plane {
    pub const fn bytes(&self) -> usize {
        self.heads * self.width * self.element.bytes()
    }
}

/// How long a group needs what it cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retention {
    /// Every token of the context.
    Full,
    /// The last `n` tokens (the query's own included); older pages go back to the pool.
    Window(usize),
    /// One state per sequence, replaced as tokens are computed (recurrent layers).
    State,
    /// The encoder's tokens, written once by the encoder's plan and kept as long as the sequence (cross-attention).
    Encoder,
}

/// Layers whose cache has the same shape and the same lifetime: they share one block table per sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KvGroup {
    pub name: String,
    pub layers: usize,
    pub planes: Vec<Plane>,
    pub retention: Retention,
}

impl KvGroup {
    /// Bytes that one token (or one sequence's state) takes in all layers of the group.
    pub fn entry_bytes(&self) -> usize {
        self.layers * self.planes.iter().map(Plane::bytes).sum::<usize>()
    }
}

/// Where a layer's cache is: a layer that shares another's cache simply names the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct KvLayer {
    pub group: usize,
    pub layer: usize,
}

/// How many entries of each group fit a page. All pages have the same number of bytes, so one pool serves all groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageLayout {
    pub page_bytes: usize,
    pub groups: Vec<GroupPages>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GroupPages {
    pub retention: Retention,
    /// Tokens a page holds; for `Retention::State` 0.
    pub tokens_per_page: usize,
    /// Pages that one sequence's state takes; 0 for groups that cache tokens.
    pub pages_per_state: usize,
}

impl PageLayout {
    /// Pages of `tokens_per_page` tokens of the largest token group; other groups fit as many tokens as a power of two
    /// times that allows, so that page boundaries of all groups coincide at multiples of the largest count.
    pub fn new(groups: &[KvGroup], tokens_per_page: usize) -> PageLayout {
        assert!(tokens_per_page > 0, "a page must hold a token");
        let is_state = |g: &&KvGroup| g.retention == Retention::State;
        let largest = groups
            .iter()
            .filter(|g| !is_state(g))
            .map(KvGroup::entry_bytes)
            .max()
            .unwrap_or(0);
        // A model with nothing but state keeps one state a page.
        let page_bytes = match largest {
            0 => groups
                .iter()
                .map(KvGroup::entry_bytes)
                .max()
                .unwrap_or(0)
                .max(1),
            bytes => bytes * tokens_per_page,
        };
        let groups = groups
            .iter()
            .map(|g| match g.retention {
                Retention::State => GroupPages {
                    retention: g.retention,
                    tokens_per_page: 0,
                    pages_per_state: g.entry_bytes().div_ceil(page_bytes),
                },
                _ => {
                    let mut tokens = tokens_per_page;
                    while g.entry_bytes() > 0 && 2 * tokens * g.entry_bytes() <= page_bytes {
                        tokens *= 2;
                    }
                    GroupPages {
                        retention: g.retention,
                        tokens_per_page: tokens,
                        pages_per_state: 0,
                    }
                }
            })
            .collect();
        PageLayout { page_bytes, groups }
    }

    /// Token counts at which every group starts a new page are multiples of this.
    pub fn common_tokens(&self) -> usize {
        self.groups
            .iter()
            .map(|g| g.tokens_per_page)
            .max()
            .unwrap_or(0)
            .max(1)
    }

    /// Pages that a sequence of `tokens` tokens holds between steps, its encoder's input apart. While a step runs, a
    /// window also holds the pages it slides off.
    pub fn sequence_pages(&self, tokens: usize) -> usize {
        let own = |g: &&GroupPages| g.retention != Retention::Encoder;
        let groups = self.groups.iter().filter(own);
        groups.map(|g| g.pages_for(tokens)).sum()
    }
}

impl GroupPages {
    /// Pages that `tokens` of the group's tokens take, the ones fallen out of the window given back.
    pub fn pages_for(&self, tokens: usize) -> usize {
        match self.retention {
            Retention::State => self.pages_per_state,
            Retention::Full | Retention::Encoder => tokens.div_ceil(self.tokens_per_page),
            Retention::Window(_) => tokens.div_ceil(self.tokens_per_page) - self.first_page(tokens),
        }
    }

    /// The first page that is still needed when the next token to compute is `computed` (0-based position).
    pub fn first_page(&self, computed: usize) -> usize {
        match self.retention {
            Retention::Window(window) => {
                (computed + 1).saturating_sub(window) / self.tokens_per_page
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(layers: usize, heads: usize, retention: Retention) -> KvGroup {
        let plane = Plane {
            heads,
            width: 64,
            element: KvElement::F16,
        };
        KvGroup {
            name: "test".into(),
            layers,
            planes: vec![plane, plane],
            retention,
        }
    }

    #[test]
    fn one_group_has_pages_of_the_asked_size() {
        let layout = PageLayout::new(&[group(30, 3, Retention::Full)], 32);
        assert_eq!(layout.page_bytes, 32 * 30 * 2 * 3 * 64 * 2);
        assert_eq!(layout.groups[0].tokens_per_page, 32);
        assert_eq!(layout.sequence_pages(0), 0);
        assert_eq!(layout.sequence_pages(32), 1);
        assert_eq!(layout.sequence_pages(33), 2);
    }

    #[test]
    fn smaller_groups_fit_more_tokens_in_an_equal_page() {
        let groups = [
            group(8, 4, Retention::Full),
            group(1, 4, Retention::Window(100)),
        ];
        let layout = PageLayout::new(&groups, 16);
        assert_eq!(layout.groups[1].tokens_per_page, 128);
        assert_eq!(layout.common_tokens(), 128);
    }

    #[test]
    fn window_pages_are_given_back_exactly_when_no_query_needs_them() {
        let pages = GroupPages {
            retention: Retention::Window(32),
            tokens_per_page: 16,
            pages_per_state: 0,
        };
        // The query at position 46 sees 15..=46; the one at 47 sees 16..=47 and page 0 is free.
        assert_eq!(pages.first_page(46), 0);
        assert_eq!(pages.first_page(47), 1);
        assert_eq!(pages.pages_for(47), 2);
    }

    #[test]
    fn a_state_takes_whole_pages_whatever_the_length() {
        let groups = [group(1, 1, Retention::Full), group(3, 64, Retention::State)];
        let layout = PageLayout::new(&groups, 16);
        let pages = (3 * 2 * 64 * 64 * 2_usize).div_ceil(16 * 2 * 64 * 2);
        assert_eq!(layout.groups[1].pages_per_state, pages);
        assert_eq!(layout.sequence_pages(1), 1 + pages);
    }
}
