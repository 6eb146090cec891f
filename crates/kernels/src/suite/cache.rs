//! Owns a paged KV cache for attention tests: pages in no order, NaN wherever no token was written.

use super::numbers::{random, words};
use crate::select::Element;

pub(super) struct Cache {
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Context length of each sequence.
    pub contexts: Vec<usize>,
    pub pages: Vec<u8>,
    pub page_stride: usize,
    pub layer_offset: usize,
    /// Where each sequence's blocks start, its first page subtracted: sequences with a window miss early pages.
    pub tables: Vec<i32>,
    pub blocks: Vec<u32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Cache {
    /// Pages that `window` hides from every query from `first_query` on are not there.
    pub fn new(
        element: Element,
        kv_heads: usize,
        head_dim: usize,
        tokens_per_page: usize,
        contexts: &[usize],
        first_queries: &[usize],
        window: usize,
    ) -> Cache {
        let plane = kv_heads * tokens_per_page * head_dim;
        // Three layers, of which the second is used.
        let (page_stride, layer_offset) = (6 * plane, 2 * plane);
        let mut tables = Vec::new();
        let mut page_numbers = Vec::new();
        for (sequence, &context) in contexts.iter().enumerate() {
            let hidden = if window > 0 {
                (first_queries[sequence] + 1).saturating_sub(window)
            } else {
                0
            };
            let first_page = hidden / tokens_per_page;
            tables.push(page_numbers.len() as i32 - first_page as i32);
            for page in first_page..context.div_ceil(tokens_per_page) {
                page_numbers.push((sequence, page));
            }
        }
        // A permutation: 7 has no common factor with an odd count that is no multiple of 7.
        let mut count = page_numbers.len() | 1;
        while count.is_multiple_of(7) {
            count += 2;
        }
        let blocks: Vec<u32> = (0..page_numbers.len())
            .map(|i| ((i * 7 + 3) % count) as u32)
            .collect();
        let width = contexts.iter().max().expect("a context") * kv_heads * head_dim;
        let keys = random(element, 41, contexts.len() * width);
        let values = random(element, 42, contexts.len() * width);
        let mut cache = Cache {
            kv_heads,
            head_dim,
            contexts: contexts.to_vec(),
            pages: Vec::new(),
            page_stride,
            layer_offset,
            tables,
            blocks,
            keys,
            values,
        };
        let mut pool = vec![f32::NAN; count * page_stride];
        for (&block, &(sequence, page)) in cache.blocks.iter().zip(&page_numbers) {
            for slot in 0..tokens_per_page {
                let token = page * tokens_per_page + slot;
                if token >= contexts[sequence] {
                    continue;
                }
                for head in 0..kv_heads {
                    let at = block as usize * page_stride
                        + layer_offset
                        + (head * tokens_per_page + slot) * head_dim;
                    pool[at..at + head_dim].copy_from_slice(cache.key(sequence, token, head));
                    pool[at + plane..at + plane + head_dim]
                        .copy_from_slice(cache.value(sequence, token, head));
                }
            }
        }
        cache.pages = element.encode(&pool);
        cache
    }

    fn at(&self, sequence: usize, token: usize, head: usize) -> usize {
        let longest = self.contexts.iter().max().expect("a context");
        ((sequence * longest + token) * self.kv_heads + head) * self.head_dim
    }

    fn key(&self, sequence: usize, token: usize, head: usize) -> &[f32] {
        &self.keys[self.at(sequence, token, head)..][..self.head_dim]
    }

    fn value(&self, sequence: usize, token: usize, head: usize) -> &[f32] {
        &self.values[self.at(sequence, token, head)..][..self.head_dim]
    }

    /// What the query at `position` gets from one KV head, in f64.
    pub fn attend(
        &self,
        q: &[f32],
        sequence: usize,
        position: usize,
        head: usize,
        scale: f32,
        window: usize,
    ) -> Vec<f64> {
        let first = if window > 0 {
            (position + 1).saturating_sub(window)
        } else {
            0
        };
        let scores: Vec<f64> = (first..=position)
            .map(|token| {
                let products = q.iter().zip(self.key(sequence, token, head));
                products
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
                    .sum::<f64>()
                    * f64::from(scale)
            })
            .collect();
        let best = scores.iter().copied().fold(f64::MIN, f64::max);
        let shares: Vec<f64> = scores.iter().map(|s| (s - best).exp()).collect();
        let total: f64 = shares.iter().sum();
        let mut out = vec![0.0; self.head_dim];
        for (share, token) in shares.iter().zip(first..) {
            for (out, value) in out.iter_mut().zip(self.value(sequence, token, head)) {
                *out += share / total * f64::from(*value);
            }
        }
        out
    }

    pub fn signed(values: &[i32]) -> Vec<u8> {
        words(&values.iter().map(|v| *v as u32).collect::<Vec<_>>())
    }
}
