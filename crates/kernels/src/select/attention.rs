//! Owns the choice of attention kernels and the split of contexts over threadgroups.

use super::{DeviceProfile, Element, Launch, kernel};

/// Head sizes that kernels exist for.
const HEAD_DIMS: [u32; 3] = [32, 64, 128];
/// A part of a context has at least so many tokens: fewer do not pay for the second kernel.
const MIN_PART_TOKENS: u32 = 256;
/// Threadgroups that keep a core busy.
const GROUPS_PER_CORE: u32 = 8;

/// The kernel's head size for a model's: the next larger one, missing columns being zero. None: there is no kernel.
pub fn padded_head_dim(head_dim: u32) -> Option<u32> {
    // Keys are staged eight elements at a time.
    let padded = HEAD_DIMS.into_iter().find(|d| head_dim <= *d);
    padded.filter(|_| head_dim > 0 && head_dim.is_multiple_of(8))
}

/// Single queries, each over its own context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

#[derive(Clone, Debug, PartialEq, Eq)]
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
    let constants = vec![("is_split", u32::from(parts > 1))];
    let attend = Launch {
        kernel: kernel(&format!("attention_decode_{suffix}_d{padded}")),
        threadgroups: [head_blocks, shape.queries, parts],
        threads: 128,
        threadgroup_bytes: (4 * head_block * (padded + 2) * 4) as usize,
        constants: constants.clone(),
    };
    let reduce = (parts > 1).then(|| Launch {
        kernel: kernel(&format!("attention_reduce_{suffix}_d{padded}")),
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
    let smallest = aligned(MIN_PART_TOKENS);
    if shape.batch_invariant {
        return smallest;
    }
    let wanted = (GROUPS_PER_CORE * device.cores).div_ceil(head_blocks * shape.queries.max(1));
    aligned(shape.longest_context.div_ceil(wanted.max(1))).max(smallest)
}

/// Tiles of 32 queries, counted over all sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillShape {
    pub element: Element,
    pub tiles: u32,
    pub heads: u32,
    pub head_dim: u32,
    /// Every row of q lies at a multiple of 16 bytes.
    pub rows_aligned: bool,
}

/// Queries of one tile.
pub const PREFILL_TILE: u32 = 32;

pub fn attention_prefill(shape: &PrefillShape) -> Option<Launch> {
    let padded = padded_head_dim(shape.head_dim)?;
    let keys = if padded == 128 { 16 } else { 32 };
    Some(Launch {
        kernel: kernel(&format!(
            "attention_prefill_{}_d{padded}",
            shape.element.suffix()
        )),
        threadgroups: [shape.heads, shape.tiles, 1],
        threads: 128,
        threadgroup_bytes: ((PREFILL_TILE + keys) * (padded + 8)) as usize * shape.element.bytes(),
        constants: vec![("aligned", shape.rows_aligned.into())],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(queries: u32, longest_context: u32) -> DecodeShape {
        DecodeShape {
            element: Element::F16,
            queries,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            longest_context,
            tokens_per_page: 32,
            batch_invariant: false,
        }
    }

    #[test]
    fn smaller_heads_use_the_next_kernel() {
        let padded: Vec<_> = [8, 32, 40, 64, 80, 128].map(padded_head_dim).into();
        let expected = [32, 32, 64, 64, 128, 128].map(Some);
        assert_eq!(padded, expected);
        assert_eq!([0, 20, 136, 256].map(padded_head_dim), [None; 4]);
    }

    #[test]
    fn contexts_are_split_until_the_device_is_busy() {
        let device = DeviceProfile::apple(10);
        let parts = |queries, context| {
            attention_decode(&shape(queries, context), &device)
                .unwrap()
                .parts
        };
        assert_eq!(parts(1, 1), 1);
        assert_eq!(parts(1, 256), 1);
        assert_eq!(parts(1, 257), 2);
        assert_eq!(parts(1, 100_000), 10);
        assert_eq!(parts(16, 100_000), 1);
    }

    #[test]
    fn parts_are_whole_pages_and_cover_the_context() {
        let device = DeviceProfile::nvidia(132);
        for context in (1..3000).step_by(37) {
            let choice = attention_decode(&shape(2, context), &device).unwrap();
            assert!(choice.part_tokens.is_multiple_of(32) && choice.part_tokens >= 256);
            assert!(choice.parts * choice.part_tokens >= context);
            assert!((choice.parts - 1) * choice.part_tokens < context);
            assert_eq!(choice.reduce.is_some(), choice.parts > 1);
            assert!(choice.attend.threadgroup_bytes <= 16 << 10);
        }
    }

    #[test]
    fn an_invariant_split_sees_no_batch() {
        let device = DeviceProfile::nvidia(132);
        let part = |queries| {
            let shape = DecodeShape {
                batch_invariant: true,
                ..shape(queries, 4000)
            };
            attention_decode(&shape, &device).unwrap().part_tokens
        };
        assert_eq!(part(1), part(64));
    }

    #[test]
    fn every_attention_kernel_exists() {
        for element in [Element::F16, Element::Bf16] {
            for head_dim in [32, 64, 128] {
                let long = DecodeShape {
                    element,
                    head_dim,
                    ..shape(1, 5000)
                };
                assert!(
                    attention_decode(&long, &DeviceProfile::apple(40))
                        .unwrap()
                        .reduce
                        .is_some()
                );
                let prefill = PrefillShape {
                    element,
                    tiles: 3,
                    heads: 9,
                    head_dim,
                    rows_aligned: true,
                };
                let launch = attention_prefill(&prefill).unwrap();
                assert!(launch.threadgroup_bytes <= 16 << 10);
            }
        }
    }
}
