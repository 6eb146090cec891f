//! Owns gpt-oss's experts: 4-bit floats in blocks of 32 along the input, and a power of two for each in a tensor beside.

use super::blocks::BLOCK;
use super::stored;
use crate::error::Result;
use crate::safetensors::element::Element;
use crate::safetensors::shards::Shards;
use mettle_tensor::DType;
use std::ops::Range;

/// Two columns each.
const BYTES: usize = BLOCK / 2;

const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";

pub struct Mxfp4 {
    /// Of the matrix or of one for each expert, in columns.
    shape: Vec<usize>,
    blocks: usize,
    scales: usize,
}

/// The name that the model knows a pair by: `X` of `X_blocks`.
pub fn model_name(stored: &str) -> String {
    stored.strip_suffix(BLOCKS).unwrap_or(stored).to_owned()
}

impl Mxfp4 {
    /// Takes `X_blocks` of bytes, with `X_scales`.
    pub fn find(shards: &Shards, index: usize) -> Result<Option<Mxfp4>> {
        let blocks = &shards.tensors()[index];
        let Some(name) = blocks.name.strip_suffix(BLOCKS) else {
            return Ok(None);
        };
        let wrong = |problem: String| Err(stored::malformed(shards, index, problem));
        let [outer @ .., groups, BYTES] = &blocks.shape[..] else {
            return wrong(format!(
                "has shape {:?}; blocks of {BYTES} bytes are wanted",
                blocks.shape
            ));
        };
        if blocks.element != Element::U8 || outer.is_empty() {
            return wrong(format!(
                "is {} {:?}; rows of blocks of bytes are wanted",
                blocks.element.name(),
                blocks.shape
            ));
        }
        let Some(scales) = shards.find(&format!("{name}{SCALES}")) else {
            return wrong(format!("has no {name}{SCALES}"));
        };
        let found = &shards.tensors()[scales];
        let wanted = &blocks.shape[..blocks.shape.len() - 1];
        if found.element != Element::U8 || found.shape != wanted {
            let problem = format!(
                "is {} {:?}; with {:?} it must be U8 {wanted:?}",
                found.element.name(),
                found.shape,
                blocks.name
            );
            return Err(stored::malformed(shards, scales, problem));
        }
        let Some(columns) = groups.checked_mul(BLOCK) else {
            return wrong(format!("has {groups} blocks a row"));
        };
        Ok(Some(Mxfp4 {
            shape: [outer, &[columns]].concat(),
            blocks: index,
            scales,
        }))
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn stored(&self) -> [usize; 2] {
        [self.blocks, self.scales]
    }

    /// A stored byte holds two neighbouring columns, ours a column and the one 16 behind it.
    pub fn convert(&self, shards: &Shards, rows: Range<usize>, out: &mut [u8]) {
        let (blocks, scales) = (shards.bytes(self.blocks), shards.bytes(self.scales));
        let blocks_in_row = self.shape[self.shape.len() - 1] / BLOCK;
        let wanted = rows.start * blocks_in_row..rows.end * blocks_in_row;
        for (block, out) in wanted.zip(out.chunks_exact_mut(DType::MXFP4.block_bytes())) {
            let stored = &blocks[block * BYTES..(block + 1) * BYTES];
            let nibble = |column: usize| (stored[column / 2] >> (4 * (column % 2))) & 15;
            out[0] = scales[block];
            for (j, byte) in out[1..].iter_mut().enumerate() {
                *byte = nibble(j) | nibble(j + BLOCK / 2) << 4;
            }
        }
    }
}
