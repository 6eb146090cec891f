//! Owns the test of prefill attention, against f64.

use super::Bench;
use super::SuiteArgument::{In, Out};
use super::attention::{Heads, SCALE, tolerance};
use super::cache::Cache;
use super::numbers::{close, f, l, random, u, words};
use crate::select::{self, DeviceProfile, Element, PrefillShape};

/// The last `length` tokens of each (context, length) are queries.
pub(super) fn prefill(
    bench: &mut Bench,
    element: Element,
    shape: Heads,
    batch: &[(usize, usize)],
    window: usize,
    page: usize,
    device: DeviceProfile,
) -> Result<(), String> {
    let Heads {
        heads,
        kv_heads,
        head_dim,
    } = shape;
    let contexts: Vec<usize> = batch.iter().map(|(context, _)| *context).collect();
    let first: Vec<usize> = batch.iter().map(|(c, length)| c - length).collect();
    let cache = Cache::new(element, kv_heads, head_dim, page, &contexts, &first, window);
    let stride = heads * head_dim;
    let mut query_start = vec![0_u32];
    let mut tiles = Vec::new();
    for (sequence, (_, length)) in batch.iter().enumerate() {
        query_start.push(query_start[sequence] + *length as u32);
        let firsts = (0..*length as u32).step_by(device.prefill_queries as usize);
        tiles.extend(firsts.flat_map(|first| [sequence as u32, first]));
    }
    let tokens = query_start[batch.len()] as usize;
    let q = random(element, 61, tokens * stride);
    let mut wanted = vec![f64::NAN; tokens * stride];
    for (sequence, &(_, length)) in batch.iter().enumerate() {
        for query in 0..length {
            for head in 0..heads {
                let at = (query_start[sequence] as usize + query) * stride + head * head_dim;
                let kv_head = head / (heads / kv_heads);
                let position = first[sequence] + query;
                let row = &q[at..at + head_dim];
                let out = cache.attend(row, sequence, position, kv_head, SCALE, window);
                wanted[at..at + head_dim].copy_from_slice(&out);
            }
        }
    }
    let shape = PrefillShape {
        element,
        tiles: (tiles.len() / 2) as u32,
        heads: heads as u32,
        head_dim: head_dim as u32,
        rows_aligned: true,
    };
    let launch = select::attention_prefill(&shape, &device).ok_or("no prefill attention")?;
    if launch.threadgroup_bytes > bench.profile.threadgroup_bytes {
        // Of another device's tiles.
        return Ok(());
    }
    let lengths: Vec<u32> = contexts.iter().map(|c| *c as u32).collect();
    let mut out = element.poisoned(tokens * stride);
    bench.dispatch(
        &launch,
        &mut [
            In(&element.encode(&q)),
            In(&cache.pages),
            In(&words(&tiles)),
            In(&words(&query_start)),
            In(&words(&lengths)),
            In(&Cache::signed(&cache.tables)),
            In(&words(&cache.blocks)),
            Out(&mut out),
        ],
        &[
            ("page_stride", l(cache.page_stride)),
            ("layer_offset", l(cache.layer_offset)),
            ("heads", u(heads)),
            ("kv_heads", u(kv_heads)),
            ("head_dim", u(head_dim)),
            ("tokens_per_page", u(page)),
            ("q_stride", u(stride)),
            ("out_stride", u(stride)),
            ("window", u(window)),
            ("scale", f(SCALE)),
        ],
    )?;
    let (absolute, relative) = tolerance(element, 2.0);
    close("out", &element.decode(&out), &wanted, absolute, relative)
}
