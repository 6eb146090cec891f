//! Owns matrices of 8-bit floats (e4m3), with a scale for the tensor, for each row, or for each tile.

use super::blocks::{self, BLOCK};
use super::config::Fp8Config;
use super::stored;
use crate::error::Result;
use crate::safetensors::element::Element;
use crate::safetensors::shards::Shards;
use mettle_tensor::DType;
use std::ops::Range;

pub struct Fp8 {
    rows: usize,
    columns: usize,
    weight: usize,
    scales: usize,
    /// Rows and columns that share a scale.
    tile: [usize; 2],
}

/// Both names multiply: `weight_scale_inv` is the inverse of what the writer multiplied by.
const SCALE_NAMES: [&str; 2] = ["weight_scale_inv", "weight_scale"];

impl Fp8 {
    /// Takes `X.weight` of 8-bit floats, with `X.weight_scale_inv` or `X.weight_scale`.
    pub fn find(shards: &Shards, index: usize, config: &Fp8Config) -> Result<Option<Fp8>> {
        if !stored::is(shards, index, "weight", Element::F8E4M3) {
            return Ok(None);
        }
        let [rows, columns] = shards.tensors()[index].shape[..] else {
            let problem = format!("of shape {:?} is no matrix", shards.tensors()[index].shape);
            return Err(stored::malformed(shards, index, problem));
        };
        if !columns.is_multiple_of(BLOCK) {
            let problem = format!("has {columns} columns, which are not whole blocks of {BLOCK}");
            return Err(stored::malformed(shards, index, problem));
        }
        let mut named = SCALE_NAMES.into_iter();
        let found = named.find_map(|name| stored::companion(shards, index, name));
        let Some(scales) = found else {
            let problem = format!("has neither {} beside it", SCALE_NAMES.join(" nor "));
            return Err(stored::malformed(shards, index, problem));
        };
        let stored_scales = &shards.tensors()[scales];
        let tile = config.tile.filter(|[high, wide]| {
            stored_scales.shape == [rows.div_ceil(*high), columns.div_ceil(*wide)]
        });
        let tile = match stored_scales.shape[..] {
            _ if tile.is_some() => tile,
            [] | [1] | [1, 1] => Some([rows, columns]),
            [each] | [each, 1] if each == rows => Some([1, columns]),
            _ => None,
        };
        let (Some(tile), Some(_)) = (tile, stored_scales.element.dense()) else {
            let tiles = match config.tile {
                Some([high, wide]) => format!(", or one per {high} x {wide} tile"),
                None => String::new(),
            };
            let problem = format!(
                "is {} {:?}; [{rows}, {columns}] weights need one float, one per row{tiles}",
                stored_scales.element.name(),
                stored_scales.shape
            );
            return Err(stored::malformed(shards, scales, problem));
        };
        Ok(Some(Fp8 {
            rows,
            columns,
            weight: index,
            scales,
            tile,
        }))
    }

    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    pub fn stored(&self) -> [usize; 2] {
        [self.weight, self.scales]
    }

    pub fn convert(&self, shards: &Shards, rows: Range<usize>, out: &mut [u8]) {
        let weight = shards.bytes(self.weight);
        let blocks_in_row = self.columns / BLOCK;
        let [high, wide] = self.tile;
        let scales_in_row = self.columns.div_ceil(wide);
        let blocks = rows.start * blocks_in_row..rows.end * blocks_in_row;
        for (block, out) in blocks.zip(out.chunks_exact_mut(DType::F8.block_bytes())) {
            let (row, column) = (block / blocks_in_row, block % blocks_in_row * BLOCK);
            let at = row / high * scales_in_row + column / wide;
            let scale = stored::float(shards, self.scales, at);
            let bytes = &weight[block * BLOCK..(block + 1) * BLOCK];
            blocks::f8(scale, bytes, out);
        }
    }
}

/// The scale of a layer's quantized activations: ours are not quantized by it.
pub fn activation_scale(shards: &Shards, index: usize) -> Option<usize> {
    match stored::is(shards, index, "weight", Element::F8E4M3) {
        true => stored::companion(shards, index, "input_scale"),
        false => None,
    }
}
