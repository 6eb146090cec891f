//! Owns the test of decode attention, against f64.

use super::Bench;
use super::SuiteArgument::{In, Out};
use super::attention::{Heads, SCALE, tolerance};
use super::cache::Cache;
use super::numbers::{check, close, f, l, random, u, words};
use crate::select::{self, DecodeShape, DeviceProfile, Element};

#[derive(Clone, Copy)]
pub(super) enum Split {
    /// As for the device.
    Chosen,
    /// Into as many parts as there may be.
    Forced,
}

/// One query at the end of each context.
pub(super) fn decode(
    bench: &mut Bench,
    element: Element,
    shape: Heads,
    contexts: &[usize],
    window: usize,
    split: Split,
) -> Result<(), String> {
    let Heads {
        heads,
        kv_heads,
        head_dim,
    } = shape;
    let page = 16;
    let last: Vec<usize> = contexts.iter().map(|c| c - 1).collect();
    let cache = Cache::new(element, kv_heads, head_dim, page, contexts, &last, window);
    let (queries, stride) = (contexts.len(), heads * head_dim);
    // Queries stand in the rows of a mixed batch in reverse, one row apart.
    let rows: Vec<u32> = (0..queries)
        .map(|i| (2 * (queries - 1 - i)) as u32)
        .collect();
    let q = random(element, 51, 2 * queries * stride);
    let mut wanted = vec![f64::NAN; 2 * queries * stride];
    for i in 0..queries {
        for head in 0..heads {
            let at = rows[i] as usize * stride + head * head_dim;
            let kv_head = head / (heads / kv_heads);
            let query = &q[at..at + head_dim];
            let out = cache.attend(query, i, contexts[i] - 1, kv_head, SCALE, window);
            wanted[at..at + head_dim].copy_from_slice(&out);
        }
    }
    let longest = contexts.iter().max().expect("a query");
    let shape = DecodeShape {
        element,
        queries: queries as u32,
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: head_dim as u32,
        longest_context: *longest as u32,
        tokens_per_page: page as u32,
        batch_invariant: false,
    };
    let device = match split {
        Split::Chosen => bench.profile,
        Split::Forced => DeviceProfile {
            cores: 10_000,
            ..bench.profile
        },
    };
    let choice = select::attention_decode(&shape, &device).ok_or("no decode attention")?;
    if matches!(split, Split::Forced) {
        check(choice.parts > 1, || "the context is not split".into())?;
    }
    let params = [
        ("page_stride", l(cache.page_stride)),
        ("layer_offset", l(cache.layer_offset)),
        ("heads", u(heads)),
        ("kv_heads", u(kv_heads)),
        ("head_dim", u(head_dim)),
        ("tokens_per_page", u(page)),
        ("q_stride", u(stride)),
        ("out_stride", u(stride)),
        ("part_tokens", u(choice.part_tokens as usize)),
        ("parts", u(choice.parts as usize)),
        ("window", u(window)),
        ("scale", f(SCALE)),
    ];
    let lengths: Vec<u32> = contexts.iter().map(|c| *c as u32).collect();
    let mut out = element.poisoned(2 * queries * stride);
    let mut partials = Element::F32.poisoned(choice.partial_floats);
    let rows_bytes = words(&rows);
    bench.dispatch(
        &choice.attend,
        &mut [
            In(&element.encode(&q)),
            In(&cache.pages),
            In(&rows_bytes),
            In(&words(&lengths)),
            In(&Cache::signed(&cache.tables)),
            In(&words(&cache.blocks)),
            Out(&mut partials),
            Out(&mut out),
        ],
        &params,
    )?;
    if let Some(reduce) = &choice.reduce {
        let mut arguments = [In(&partials), In(&rows_bytes), Out(&mut out)];
        bench.dispatch(reduce, &mut arguments, &params)?;
    }
    let got = element.decode(&out);
    let (absolute, relative) = tolerance(element, 1.0);
    for &row in &rows {
        let at = row as usize * stride;
        let (got_row, next) = got[at..at + 2 * stride].split_at(stride);
        let what = format!("row {row}");
        close(&what, got_row, &wanted[at..at + stride], absolute, relative)?;
        check(next.iter().all(|v| v.is_nan()), || {
            format!("{what}: the row after is touched")
        })?;
    }
    Ok(())
}
