//! Owns the arithmetic of how many pages a sequence may hold at the most, which admission relies on.

use mettle_plan::{PageLayout, Retention};

/// A pool's size and shape, and the most tokens that one step computes of a sequence.
#[derive(Clone, Debug)]
pub struct Footprint {
    layout: PageLayout,
    pages: usize,
    chunk: usize,
}

impl Footprint {
    pub fn new(layout: PageLayout, pages: usize, chunk: usize) -> Footprint {
        assert!(chunk > 0, "a step must hold a token");
        Footprint {
            layout,
            pages,
            chunk,
        }
    }

    /// Pages of the whole pool.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Pages that one sequence growing up to `tokens` tokens holds at any time. A window's pages are given back after
    /// the step, so the pages of a chunk come on top of the window's. The pages of its encoder's input of `encoded` tokens
    /// are there from the start.
    pub fn pages_at_most(&self, tokens: usize, encoded: usize) -> usize {
        let of_group = |group: &mettle_plan::GroupPages| match group.retention {
            Retention::Encoder => encoded.div_ceil(group.tokens_per_page),
            Retention::State => group.pages_per_state,
            Retention::Full => tokens.div_ceil(group.tokens_per_page),
            Retention::Window(window) => {
                let span = window.saturating_sub(1) + self.chunk;
                // Any alignment: a span of n tokens touches at most this many pages.
                let touched = (span - 1).div_ceil(group.tokens_per_page) + 1;
                tokens.div_ceil(group.tokens_per_page).min(touched)
            }
        };
        self.layout.groups.iter().map(of_group).sum()
    }
}
