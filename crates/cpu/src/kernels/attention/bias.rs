//! Owns the bias that a token's distance adds to its score, spread out so that a block of tokens reads its own side by side.

use crate::kv::TOKENS;
use mettle_plan::RelativeBias;
use std::ops::Range;

/// Every head's bias at every distance up to the greatest one, and a block's length beyond it on both sides.
pub struct BiasTable {
    values: Vec<f32>,
    /// Distances from here on have one bias.
    reach: usize,
}

/// The heads of a table that one attention computes.
#[derive(Clone, Copy)]
pub struct BiasRows<'a> {
    values: &'a [f32],
    reach: usize,
}

impl BiasTable {
    /// `weight` has a row for each bucket and a column for each head.
    pub fn new(bias: &RelativeBias, weight: &[f32]) -> BiasTable {
        let (heads, reach) = (weight.len() / bias.buckets, bias.max_distance);
        let far = (reach + TOKENS) as isize;
        let values = (0..heads).flat_map(|head| {
            let of_head = move |bucket: usize| weight[bucket * heads + head];
            (-far..far).map(move |ahead| of_head(bucket(bias, ahead)))
        });
        BiasTable {
            values: values.collect(),
            reach,
        }
    }

    pub fn bytes(&self) -> usize {
        self.values.len() * size_of::<f32>()
    }

    pub fn rows(&self, heads: Range<usize>) -> BiasRows<'_> {
        let width = width(self.reach);
        BiasRows {
            values: &self.values[heads.start * width..heads.end * width],
            reach: self.reach,
        }
    }
}

/// Stands where nothing is added.
pub const NO_BIAS: [f32; TOKENS] = [0.0; TOKENS];

impl<'a> BiasRows<'a> {
    /// What the tokens from position `block` on add to the scores of the query at `query`.
    #[inline(always)]
    pub fn of_block(&self, head: usize, query: usize, block: usize) -> &'a [f32; TOKENS] {
        // Farther blocks have the bias of the farthest ones all over.
        let far = self.reach + TOKENS;
        let ahead = (block + far).saturating_sub(query).min(self.reach + far);
        let start = head * width(self.reach) + ahead;
        let values = &self.values[start..start + TOKENS];
        values.try_into().expect("so many values")
    }
}

/// Values of one head.
const fn width(reach: usize) -> usize {
    2 * (reach + TOKENS)
}

/// The bucket of a token `ahead` of the query: single distances first, then ever wider ranges. With both directions, half of
/// the buckets are for what comes later.
fn bucket(bias: &RelativeBias, ahead: isize) -> usize {
    let (buckets, first) = match (bias.bidirectional, ahead > 0) {
        (false, _) => (bias.buckets, 0),
        (true, false) => (bias.buckets / 2, 0),
        (true, true) => (bias.buckets / 2, bias.buckets / 2),
    };
    let distance = match bias.bidirectional {
        true => ahead.unsigned_abs(),
        false => (-ahead).max(0) as usize,
    };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    let share = |distance: usize| (distance as f64 / exact as f64).ln();
    let range = share(distance) / share(bias.max_distance) * (buckets - exact) as f64;
    // Ranges may begin at whole distances, which rounding must not move.
    let range = (range + 1e-9) as usize;
    first + (exact + range).min(buckets - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mettle_plan::WeightId;

    fn bias(bidirectional: bool) -> RelativeBias {
        RelativeBias {
            weight: WeightId(0),
            buckets: 32,
            max_distance: 128,
            bidirectional,
        }
    }

    /// Where transformers' buckets begin, in f32, for T5's 32 buckets and distances up to 128.
    #[test]
    fn buckets_begin_where_the_reference_has_them() {
        let starts = |bidirectional: bool, sign: isize| {
            let of = |d: isize| bucket(&bias(bidirectional), sign * d);
            let begins = |d: &isize| *d == 0 || of(*d) != of(*d - 1);
            (0..1000).filter(begins).collect::<Vec<isize>>()
        };
        let causal: Vec<isize> = (0..16)
            .chain([
                16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113,
            ])
            .collect();
        assert_eq!(starts(false, -1), causal);
        let both = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91];
        assert_eq!(starts(true, -1), both);
        assert_eq!(starts(true, 1), both);
        assert_eq!(starts(false, 1), [0], "what comes later is not seen");
        assert_eq!((bucket(&bias(true), 1), bucket(&bias(true), -1)), (17, 1));
    }

    #[test]
    fn a_block_reads_the_bias_of_each_of_its_tokens() {
        let heads = 3;
        for bidirectional in [false, true] {
            let bias = bias(bidirectional);
            let weight: Vec<f32> = (0..32 * heads).map(|i| i as f32).collect();
            let table = BiasTable::new(&bias, &weight);
            let rows = table.rows(1..3);
            for query in [0, 1, 31, 32, 127, 128, 129, 160, 161, 500] {
                for block in (0..1000).step_by(TOKENS) {
                    for head in 0..2 {
                        let found = rows.of_block(head, query, block);
                        for (token, found) in found.iter().enumerate() {
                            let ahead = (block + token) as isize - query as isize;
                            let expected = (bucket(&bias, ahead) * heads + head + 1) as f32;
                            assert_eq!(*found, expected, "{ahead} from {query}");
                        }
                    }
                }
            }
        }
    }
}
