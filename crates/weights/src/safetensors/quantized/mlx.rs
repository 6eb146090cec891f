//! Owns MLX's affine quantization: rows of 4-bit or 8-bit integers in words, and a scale and an offset for each group.

use super::blocks::{self, BLOCK};
use super::config::{MlxConfig, MlxLayer};
use super::stored::{self, SCALES};
use crate::error::Result;
use crate::safetensors::element::Element;
use crate::safetensors::shards::Shards;
use mettle_tensor::DType;
use std::ops::Range;

pub struct Mlx {
    bits: usize,
    group: usize,
    /// Outermost first, as the model has it.
    shape: Vec<usize>,
    weight: usize,
    scales: usize,
    offsets: usize,
}

impl Mlx {
    /// Takes `X.weight` of words, with `X.scales` and `X.biases`.
    pub fn find(shards: &Shards, index: usize, config: &MlxConfig) -> Result<Option<Mlx>> {
        if !stored::is(shards, index, "weight", Element::U32) {
            return Ok(None);
        }
        let tensor = &shards.tensors()[index];
        let MlxLayer { bits, group } = config.layer(stored::layer(&tensor.name));
        let Some((words, outer @ [_, ..])) = tensor.shape.split_last() else {
            let problem = format!("of shape {:?} is no matrix", tensor.shape);
            return Err(stored::malformed(shards, index, problem));
        };
        // A tensor's words are bytes of a file, so this is far from overflowing.
        let columns = words * (32 / bits);
        if !columns.is_multiple_of(group) {
            let problem = format!("has {columns} columns, which are not whole groups of {group}");
            return Err(stored::malformed(shards, index, problem));
        }
        let with_last = |last: usize| [outer, &[last]].concat();
        let groups = with_last(columns / group);
        let scales = stored::require(shards, index, "scales", &SCALES, &groups)?;
        let offsets = stored::require(shards, index, "biases", &SCALES, &groups)?;
        stored::check_halves(shards, scales)?;
        stored::check_halves(shards, offsets)?;
        Ok(Some(Mlx {
            bits,
            group,
            shape: with_last(columns),
            weight: index,
            scales,
            offsets,
        }))
    }

    pub fn dtype(&self) -> DType {
        match self.bits {
            4 => DType::Q4_1,
            _ => DType::Affine8,
        }
    }

    pub fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    pub fn stored(&self) -> [usize; 3] {
        [self.weight, self.scales, self.offsets]
    }

    pub fn convert(&self, shards: &Shards, rows: Range<usize>, out: &mut [u8]) {
        let columns = self.shape[self.shape.len() - 1];
        let block_bytes = BLOCK * self.bits / 8;
        let blocks_in_row = columns / BLOCK;
        let weight = shards.bytes(self.weight);
        let blocks = rows.start * blocks_in_row..rows.end * blocks_in_row;
        let mut nibbles = [0; BLOCK];
        for (block, out) in blocks.zip(out.chunks_exact_mut(self.dtype().block_bytes())) {
            let bytes = &weight[block * block_bytes..(block + 1) * block_bytes];
            // Rows are whole groups, so groups are counted through as blocks are.
            let group = block * BLOCK / self.group;
            let scale = stored::half(shards, self.scales, group);
            let offset = stored::half(shards, self.offsets, group);
            if self.bits == 8 {
                blocks::affine8(scale, offset, bytes, out);
                continue;
            }
            for (pair, byte) in nibbles.chunks_exact_mut(2).zip(bytes) {
                pair.copy_from_slice(&[byte & 15, byte >> 4]);
            }
            blocks::q4_1(scale, offset, &nibbles, out);
        }
    }
}
