//! Owns the quantized tensors of a safetensors model: several stored tensors, shown as one of the model's in block types.
//! They are converted when they are viewed, so that no more than the tensor in hand is in memory twice.

mod awq;
mod blocks;
mod config;
mod fp8;
mod gptq;
mod mlx;
mod mxfp4;
mod settings;
mod stored;

use super::shards::Shards;
use crate::error::Result;
use awq::Awq;
pub use config::Quantization;
use config::Scheme;
use fp8::Fp8;
use gptq::Gptq;
use mettle_tensor::{DType, TensorInfo};
use mlx::Mlx;
use mxfp4::Mxfp4;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Formats that pack along rows of the transposed matrix have eight of our rows in a word.
const ROWS_AT_ONCE: usize = 8;

/// A matrix that several stored tensors make up.
pub enum Packed {
    Mlx(Mlx),
    Awq(Awq),
    Gptq(Gptq),
    Fp8(Fp8),
    Mxfp4(Mxfp4),
}

/// What a quantization finds in the files.
#[derive(Default)]
pub struct Found {
    /// By the stored tensor whose place they take.
    pub tensors: HashMap<usize, (TensorInfo, Packed)>,
    /// Stored tensors that are parts of those, or that only a run with quantized activations needs.
    pub read_with_others: HashSet<usize>,
}

impl Quantization {
    pub fn find(&self, shards: &Shards) -> Result<Found> {
        let mut found = Found::default();
        for (index, stored) in shards.tensors().iter().enumerate() {
            let packed = match &self.scheme {
                Scheme::Mlx(mlx) => Mlx::find(shards, index, mlx)?.map(Packed::Mlx),
                Scheme::Awq(awq) => Awq::find(shards, index, awq)?.map(Packed::Awq),
                Scheme::Gptq(gptq) => Gptq::find(shards, index, gptq)?.map(Packed::Gptq),
                Scheme::Fp8(fp8) => {
                    if let Some(unused) = fp8::activation_scale(shards, index) {
                        found.read_with_others.insert(unused);
                    }
                    Fp8::find(shards, index, fp8)?.map(Packed::Fp8)
                }
                Scheme::Mxfp4 => Mxfp4::find(shards, index)?.map(Packed::Mxfp4),
            };
            let Some(packed) = packed else { continue };
            found.read_with_others.extend(packed.stored());
            let info = TensorInfo {
                name: packed.model_name(&stored.name),
                dtype: packed.dtype(),
                shape: packed.shape(),
            };
            found.tensors.insert(index, (info, packed));
        }
        Ok(found)
    }
}

impl Packed {
    fn model_name(&self, stored: &str) -> String {
        match self {
            Packed::Mxfp4(_) => mxfp4::model_name(stored),
            _ => stored::model_name(stored),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            Packed::Mlx(mlx) => mlx.dtype(),
            Packed::Awq(_) | Packed::Gptq(_) => DType::Zero4,
            Packed::Fp8(_) => DType::F8,
            Packed::Mxfp4(_) => DType::MXFP4,
        }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Packed::Mlx(mlx) => mlx.shape(),
            Packed::Awq(awq) => awq.shape().to_vec(),
            Packed::Gptq(gptq) => gptq.shape().to_vec(),
            Packed::Fp8(fp8) => fp8.shape().to_vec(),
            Packed::Mxfp4(mxfp4) => mxfp4.shape().to_vec(),
        }
    }

    /// The stored tensors that are read.
    fn stored(&self) -> Vec<usize> {
        match self {
            Packed::Mlx(mlx) => mlx.stored().to_vec(),
            Packed::Awq(awq) => awq.stored().to_vec(),
            Packed::Gptq(gptq) => gptq.stored(),
            Packed::Fp8(fp8) => fp8.stored().to_vec(),
            Packed::Mxfp4(mxfp4) => mxfp4.stored().to_vec(),
        }
    }

    /// The model's column that each stored one is, where they are not in the model's order.
    pub fn order(&self) -> Option<&[u32]> {
        match self {
            Packed::Gptq(gptq) => gptq.order(),
            Packed::Mlx(_) | Packed::Awq(_) | Packed::Fp8(_) | Packed::Mxfp4(_) => None,
        }
    }

    pub fn release(&self, shards: &Shards) {
        for stored in self.stored() {
            shards.release(stored);
        }
    }

    /// The blocks of the whole matrix, made by all threads.
    pub fn convert(&self, shards: &Shards, info: &TensorInfo) -> Vec<u8> {
        let (columns, outer) = info
            .shape
            .split_last()
            .expect("a matrix has two dimensions");
        let rows: usize = outer.iter().product();
        let row_bytes = info.dtype.row_bytes(*columns).expect("checked when found");
        let mut bytes = vec![0; rows * row_bytes];
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let share = rows.div_ceil(threads).next_multiple_of(ROWS_AT_ONCE);
        std::thread::scope(|scope| {
            for (index, out) in bytes.chunks_mut(share * row_bytes).enumerate() {
                let first = index * share;
                let mine = first..first + out.len() / row_bytes;
                scope.spawn(move || self.convert_rows(shards, mine, out));
            }
        });
        bytes
    }

    /// `rows` starts at a multiple of [`ROWS_AT_ONCE`].
    fn convert_rows(&self, shards: &Shards, rows: Range<usize>, out: &mut [u8]) {
        match self {
            Packed::Mlx(mlx) => mlx.convert(shards, rows, out),
            Packed::Awq(awq) => awq.convert(shards, rows, out),
            Packed::Gptq(gptq) => gptq.convert(shards, rows, out),
            Packed::Fp8(fp8) => fp8.convert(shards, rows, out),
            Packed::Mxfp4(mxfp4) => mxfp4.convert(shards, rows, out),
        }
    }
}
