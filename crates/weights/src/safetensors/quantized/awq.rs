//! Owns AWQ's 4-bit matrices in the layout of its GEMM kernel: transposed, eight outputs to a word in an order of their own.

use super::ROWS_AT_ONCE;
use super::blocks::{self, BLOCK};
use super::config::GroupSize;
use super::stored::{self, SCALES};
use crate::error::Result;
use crate::safetensors::element::Element;
use crate::safetensors::shards::Shards;
use mettle_tensor::DType;
use std::ops::Range;

/// The nibble of a word that holds each of its eight outputs.
const NIBBLE_OF: [usize; ROWS_AT_ONCE] = [0, 4, 1, 5, 2, 6, 3, 7];

pub struct Awq {
    inputs: usize,
    outputs: usize,
    group: usize,
    weight: usize,
    zeros: usize,
    scales: usize,
}

impl Awq {
    /// Takes `X.qweight`, with `X.qzeros` and `X.scales`.
    pub fn find(shards: &Shards, index: usize, group: &GroupSize) -> Result<Option<Awq>> {
        if !stored::is(shards, index, "qweight", Element::I32) {
            return Ok(None);
        }
        let [inputs, words] = shards.tensors()[index].shape[..] else {
            let problem = format!("of shape {:?} is no matrix", shards.tensors()[index].shape);
            return Err(stored::malformed(shards, index, problem));
        };
        let group = group.of(shards, index, inputs)?;
        let (groups, outputs) = (inputs / group, words * ROWS_AT_ONCE);
        let zeros = stored::require(shards, index, "qzeros", &[Element::I32], &[groups, words])?;
        let scales = stored::require(shards, index, "scales", &SCALES, &[groups, outputs])?;
        stored::check_halves(shards, scales)?;
        Ok(Some(Awq {
            inputs,
            outputs,
            group,
            weight: index,
            zeros,
            scales,
        }))
    }

    pub fn shape(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    pub fn stored(&self) -> [usize; 3] {
        [self.weight, self.zeros, self.scales]
    }

    pub fn convert(&self, shards: &Shards, rows: Range<usize>, out: &mut [u8]) {
        let words = self.outputs / ROWS_AT_ONCE;
        let (weight, zeros) = (shards.bytes(self.weight), shards.bytes(self.zeros));
        let block_bytes = DType::Zero4.block_bytes();
        let row_bytes = self.inputs / BLOCK * block_bytes;
        for (eight, out) in out.chunks_exact_mut(ROWS_AT_ONCE * row_bytes).enumerate() {
            let column = rows.start / ROWS_AT_ONCE + eight;
            for block in 0..self.inputs / BLOCK {
                let inputs: [u32; BLOCK] = std::array::from_fn(|input| {
                    stored::word(weight, (block * BLOCK + input) * words + column)
                });
                let group = block * BLOCK / self.group;
                let zero = stored::word(zeros, group * words + column);
                for (row, nibble) in NIBBLE_OF.into_iter().enumerate() {
                    let output = column * ROWS_AT_ONCE + row;
                    let scale = stored::half(shards, self.scales, group * self.outputs + output);
                    let at = row * row_bytes + block * block_bytes;
                    let nibble_of = |word: u32| (word >> (4 * nibble)) as u8 & 15;
                    let columns = inputs.map(nibble_of);
                    let out = &mut out[at..at + block_bytes];
                    blocks::zero4(scale, nibble_of(zero), &columns, out);
                }
            }
        }
    }
}
