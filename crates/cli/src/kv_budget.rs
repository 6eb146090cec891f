//! Owns how large the KV cache becomes: what was asked for, or what the context needs within what is free.

use crate::config::ConfigError;
use crate::terminal::bytes;
use mettle_engine::pager::Footprint;
use mettle_plan::PageLayout;

/// The share of free memory that the cache may take unasked.
const SHARE: u64 = 4;
/// Taken for free where the system does not say: half of a machine of 8 GB.
const UNKNOWN_FREE: u64 = 4 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvBudget {
    pub pages: usize,
    /// Tokens of prompt and answer together that the pages hold, at most the model's limit.
    pub context: usize,
}

/// What is known before the cache is made.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Tokens the model allows, or fewer if asked for.
    pub context: usize,
    /// The caller named the context, so that less is an error.
    pub is_context_fixed: bool,
    /// Bytes, where the caller named them.
    pub memory: Option<u64>,
    /// Tokens of one step.
    pub chunk: usize,
    /// Full contexts that there is to be room for, where memory allows.
    pub contexts: usize,
}

pub fn budget(layout: &PageLayout, wanted: &Wanted, free: u64) -> Result<KvBudget, ConfigError> {
    if layout.groups.is_empty() {
        // An encoder keeps nothing.
        return Ok(KvBudget {
            pages: 0,
            context: wanted.context,
        });
    }
    let page = layout.page_bytes as u64;
    // The number of pages matters to `pages_at_most` only in `pages()`.
    let footprint = Footprint::new(layout.clone(), 0, wanted.chunk);
    // The last token of an answer is never computed, but a full context is a rounder thing to have.
    let needed = footprint.pages_at_most(wanted.context, wanted.context);
    let limit = wanted.memory.unwrap_or(free / SHARE);
    let affordable = usize::try_from(limit / page).unwrap_or(usize::MAX);
    let pages = match wanted.memory {
        // More than one sequence needs is room for prefixes.
        Some(_) => affordable,
        None => affordable.min(needed.saturating_mul(wanted.contexts)),
    };
    let context = match pages >= needed {
        true => wanted.context,
        false => fitting(&footprint, pages, wanted.context),
    };
    if context == 0 || (context < wanted.context && wanted.is_context_fixed) {
        let (what, way_out) = match wanted.memory {
            Some(_) => ("--kv-memory is", "give more or a shorter --max-model-len"),
            None => (
                "a quarter of the free memory is",
                "give --kv-memory or a shorter --max-model-len",
            ),
        };
        return Err(ConfigError(format!(
            "the KV cache of {} tokens needs {}, {what} {}: {way_out}",
            wanted.context,
            bytes(needed as u64 * page),
            bytes(limit),
        )));
    }
    Ok(KvBudget { pages, context })
}

/// The most tokens of one sequence that so many pages hold.
fn fitting(footprint: &Footprint, pages: usize, context: usize) -> usize {
    let (mut low, mut high) = (0, context);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match footprint.pages_at_most(middle, middle) <= pages {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low
}

/// Bytes that could be had without pushing other programs out.
pub fn free_memory() -> u64 {
    mettle_weights::free_memory().unwrap_or(UNKNOWN_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use mettle_plan::{KvElement, KvGroup, Plane, Retention};

    /// 1024 bytes a token, 32 tokens a page.
    fn layout() -> PageLayout {
        let plane = Plane {
            heads: 4,
            width: 64,
            element: KvElement::F16,
        };
        let group = KvGroup {
            name: "all".into(),
            layers: 1,
            planes: vec![plane; 2],
            retention: Retention::Full,
        };
        PageLayout::new(&[group], 32)
    }

    fn wanted(context: usize) -> Wanted {
        Wanted {
            context,
            is_context_fixed: false,
            memory: None,
            chunk: 512,
            contexts: 1,
        }
    }

    fn check(wanted: Wanted, free: u64, pages: usize, context: usize) {
        assert_eq!(
            budget(&layout(), &wanted, free),
            Ok(KvBudget { pages, context })
        );
    }

    #[test]
    fn the_cache_is_what_the_context_needs_within_a_quarter_of_free_memory() {
        check(wanted(2048), 1 << 30, 64, 2048);
        check(wanted(2047), 1 << 30, 64, 2047);
        // A quarter of 4 MB is 32 pages.
        check(wanted(2048), 4 << 20, 32, 1024);
        let several = Wanted {
            contexts: 4,
            ..wanted(2048)
        };
        check(several, 1 << 30, 256, 2048);
        // A quarter of 20 MB is 160 pages.
        check(several, 20 << 20, 160, 2048);
    }

    #[test]
    fn a_model_without_a_cache_gets_none() {
        let asked = Wanted {
            memory: Some(10 << 20),
            ..wanted(512)
        };
        let none = KvBudget {
            pages: 0,
            context: 512,
        };
        assert_eq!(budget(&PageLayout::new(&[], 32), &asked, 0), Ok(none));
    }

    #[test]
    fn memory_that_was_asked_for_is_taken() {
        let asked = Wanted {
            memory: Some(10 << 20),
            ..wanted(2048)
        };
        check(asked, 0, 320, 2048);
        let asked = Wanted {
            memory: Some(40_000),
            ..wanted(2048)
        };
        check(asked, 1 << 30, 1, 32);
    }

    #[test]
    fn too_little_memory_is_an_error_with_numbers() {
        let error = |wanted: Wanted, free| budget(&layout(), &wanted, free).unwrap_err().0;
        expect!["the KV cache of 2048 tokens needs 2.10 MB, a quarter of the free memory is 0 B: give --kv-memory or a shorter --max-model-len"]
            .assert_eq(&error(wanted(2048), 0));
        let fixed = Wanted {
            is_context_fixed: true,
            memory: Some(1 << 20),
            ..wanted(2048)
        };
        expect!["the KV cache of 2048 tokens needs 2.10 MB, --kv-memory is 1.05 MB: give more or a shorter --max-model-len"]
            .assert_eq(&error(fixed, 0));
    }
}
