//! Owns GPTQ's 4-bit matrices: transposed, eight inputs to a word, and inputs that may belong to groups in any order.

use super::ROWS_AT_ONCE;
use super::blocks::{self, BLOCK};
use super::config::GptqConfig;
use super::stored::{self, SCALES};
use crate::error::Result;
use crate::safetensors::element::Element;
use crate::safetensors::shards::Shards;
use mettle_tensor::DType;
use std::ops::Range;

/// Inputs in a word.
const INPUTS: usize = 8;

pub struct Gptq {
    inputs: usize,
    outputs: usize,
    group: usize,
    /// What a stored zero point is short of the true one.
    zero_offset: u8,
    weight: usize,
    zeros: usize,
    scales: usize,
    groups: Option<usize>,
    /// Inputs sorted by group, where they are not so by themselves.
    order: Option<Vec<u32>>,
}

impl Gptq {
    /// Takes `X.qweight`, with `X.qzeros`, `X.scales` and, unless groups are in order, `X.g_idx`.
    pub fn find(shards: &Shards, index: usize, config: &GptqConfig) -> Result<Option<Gptq>> {
        if !stored::is(shards, index, "qweight", Element::I32) {
            return Ok(None);
        }
        let [words, outputs] = shards.tensors()[index].shape[..] else {
            let problem = format!("of shape {:?} is no matrix", shards.tensors()[index].shape);
            return Err(stored::malformed(shards, index, problem));
        };
        let inputs = words * INPUTS;
        let group = config.group.of(shards, index, inputs)?;
        let groups = inputs / group;
        if !outputs.is_multiple_of(ROWS_AT_ONCE) {
            let problem =
                format!("has {outputs} outputs; zero points are stored {ROWS_AT_ONCE} to a word");
            return Err(stored::malformed(shards, index, problem));
        }
        let zeros_shape = [groups, outputs / ROWS_AT_ONCE];
        let zeros = stored::require(shards, index, "qzeros", &[Element::I32], &zeros_shape)?;
        let scales = stored::require(shards, index, "scales", &SCALES, &[groups, outputs])?;
        stored::check_halves(shards, scales)?;
        let has_groups = stored::companion(shards, index, "g_idx").is_some();
        let group_of = match has_groups || config.act_order {
            true => Some(stored::require(
                shards,
                index,
                "g_idx",
                &[Element::I32],
                &[inputs],
            )?),
            false => None,
        };
        let order = match group_of {
            Some(group_of) => sorted_inputs(shards, group_of, group)?,
            None => None,
        };
        Ok(Some(Gptq {
            inputs,
            outputs,
            group,
            zero_offset: config.zero_offset,
            weight: index,
            zeros,
            scales,
            groups: group_of,
            order,
        }))
    }

    pub fn shape(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    pub fn stored(&self) -> Vec<usize> {
        let always = [self.weight, self.zeros, self.scales];
        always.into_iter().chain(self.groups).collect()
    }

    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    pub fn convert(&self, shards: &Shards, rows: Range<usize>, out: &mut [u8]) {
        let (weight, zeros) = (shards.bytes(self.weight), shards.bytes(self.zeros));
        let block_bytes = DType::Zero4.block_bytes();
        let row_bytes = self.inputs / BLOCK * block_bytes;
        let mut inputs = vec![0; self.inputs];
        let mut sorted = vec![0; self.inputs];
        for (output, out) in rows.zip(out.chunks_exact_mut(row_bytes)) {
            for (word, inputs) in inputs.chunks_exact_mut(INPUTS).enumerate() {
                let word = stored::word(weight, word * self.outputs + output);
                for (nibble, input) in inputs.iter_mut().enumerate() {
                    *input = (word >> (4 * nibble)) as u8 & 15;
                }
            }
            let columns = match &self.order {
                None => &inputs,
                Some(order) => {
                    for (column, input) in sorted.iter_mut().zip(order) {
                        *column = inputs[*input as usize];
                    }
                    &sorted
                }
            };
            let blocks = columns
                .chunks_exact(BLOCK)
                .zip(out.chunks_exact_mut(block_bytes));
            for (block, (columns, out)) in blocks.enumerate() {
                let group = block * BLOCK / self.group;
                let zero_word = group * (self.outputs / ROWS_AT_ONCE) + output / ROWS_AT_ONCE;
                let zero = stored::word(zeros, zero_word) >> (4 * (output % ROWS_AT_ONCE));
                // The writers took one off in 4 bits, so that 0 became 15.
                let zero = (zero as u8).wrapping_add(self.zero_offset) & 15;
                let scale = stored::half(shards, self.scales, group * self.outputs + output);
                blocks::zero4(scale, zero, columns, out);
            }
        }
    }
}

/// The inputs by group and, within one, as they come; `None` where that is the order they have. Every group must have
/// its full number of inputs.
fn sorted_inputs(shards: &Shards, index: usize, group: usize) -> Result<Option<Vec<u32>>> {
    let words = shards.bytes(index).chunks_exact(4);
    let group_of: Vec<u32> = words.map(|word| stored::word(word, 0)).collect();
    let mut order: Vec<u32> = (0..group_of.len() as u32).collect();
    order.sort_by_key(|input| group_of[*input as usize]);
    for (position, input) in order.iter().enumerate() {
        let (found, expected) = (group_of[*input as usize], position / group);
        if found as usize != expected {
            let problem = format!(
                "puts input {input} into group {}; groups of {group} inputs leave it group {expected}",
                found as i32
            );
            return Err(stored::malformed(shards, index, problem));
        }
    }
    Ok((!order.is_sorted()).then_some(order))
}
