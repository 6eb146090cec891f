//! Owns the choice of attention kernels and the split of contexts over threadgroups.

use super::{Constants, DeviceProfile, Element, Launch, kernel};

/// Head sizes that kernels exist for.
const HEAD_DIMS: [u32; 3] = [32, 64, 128];
/// Tokens of a part of a context where the split may depend on nothing else.
const INVARIANT_PART_TOKENS: u32 = 256;
/// Threadgroups that keep a core busy.
const GROUPS_PER_CORE: u32 = 8;

/// The kernel's head size for a model's: the next larger one, missing columns being zero. None: there is no kernel.
pub fn padded_head_dim(head_dim: u32) -> Option<u32> {
    // Keys are staged eight elements at a time.
    let padded = HEAD_DIMS.into_iter().find(|d| head_dim <= *d);
    padded.filter(|_| head_dim > 0 && head_dim.is_multiple_of(8))
}

/// Single queries, each over its own context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeShape {
    pub element: Element,
    pub queries: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub longest_context: u32,
    pub tokens_per_page: u32,
    /// Split by the context's length alone, so that a query's result does not depend on its batch.
    pub batch_invariant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeChoice {
    pub attend: Launch,
    /// Adds the parts up; none where the context is not split.
    pub reduce: Option<Launch>,
    pub part_tokens: u32,
    pub parts: u32,
    /// Floats of the buffer of partial results.
    pub partial_floats: usize,
}

pub fn attention_decode(shape: &DecodeShape, device: &DeviceProfile) -> Option<DecodeChoice> {
    let padded = padded_head_dim(shape.head_dim)?;
    // What fits in registers: query heads that share a load of keys and values.
    let head_block = if padded == 128 { 4 } else { 8 };
    let head_blocks = shape.kv_heads * (shape.heads / shape.kv_heads).div_ceil(head_block);
    let part_tokens = part_tokens(shape, head_blocks, device);
    let parts = shape.longest_context.div_ceil(part_tokens).max(1);
    let suffix = shape.element.suffix();
    let constants = Constants::new(&[("is_split", u32::from(parts > 1))]);
    let attend = Launch {
        kernel: kernel(format_args!("attention_decode_{suffix}_d{padded}")),
        threadgroups: [head_blocks, shape.queries, parts],
        threads: 128,
        threadgroup_bytes: (4 * head_block * (padded + 2) * 4) as usize,
        constants,
    };
    let reduce = (parts > 1).then(|| Launch {
        kernel: kernel(format_args!("attention_reduce_{suffix}_d{padded}")),
        threadgroups: [shape.heads, shape.queries, 1],
        threads: 64,
        threadgroup_bytes: 0,
        constants,
    });
    let partial_floats = match parts {
        1 => 0,
        _ => (shape.queries * shape.heads) as usize * (parts * (padded + 2)) as usize,
    };
    Some(DecodeChoice {
        attend,
        reduce,
        part_tokens,
        parts,
        partial_floats,
    })
}

/// The smallest number of page-aligned parts that keeps the device busy.
fn part_tokens(shape: &DecodeShape, head_blocks: u32, device: &DeviceProfile) -> u32 {
    let aligned = |tokens: u32| tokens.next_multiple_of(shape.tokens_per_page);
    if shape.batch_invariant {
        return aligned(INVARIANT_PART_TOKENS);
    }
    let smallest = aligned(device.decode_part_tokens);
    let wanted = (GROUPS_PER_CORE * device.cores).div_ceil(head_blocks * shape.queries.max(1));
    aligned(shape.longest_context.div_ceil(wanted.max(1))).max(smallest)
}

/// Tiles of `DeviceProfile::prefill_queries` queries, counted over all sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefillShape {
    pub element: Element,
    pub tiles: u32,
    pub heads: u32,
    pub head_dim: u32,
    /// Every row of q lies at a multiple of 16 bytes.
    pub rows_aligned: bool,
}

pub fn attention_prefill(shape: &PrefillShape, device: &DeviceProfile) -> Option<Launch> {
    let padded = padded_head_dim(shape.head_dim)?;
    let element = shape.element.suffix();
    let queries = device.prefill_queries;
    // Rows of keys and of values in threadgroup memory; small tiles have one after the other in the same place.
    let (kernel, rows) = match (queries, padded) {
        (64, _) => {
            let name = format_args!("attention_prefill_{element}_d{padded}_q64");
            (kernel(name), 32 + 32)
        }
        (32, _) => {
            let keys = if padded == 128 { 16 } else { 32 };
            let name = format_args!("attention_prefill_{element}_d{padded}");
            (kernel(name), keys)
        }
        _ => return None,
    };
    Some(Launch {
        kernel,
        threadgroups: [shape.heads, shape.tiles, 1],
        threads: 128,
        threadgroup_bytes: ((queries + rows) * (padded + 8)) as usize * shape.element.bytes(),
        constants: Constants::new(&[("aligned", shape.rows_aligned.into())]),
    })
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
