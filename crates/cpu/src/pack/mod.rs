//! Owns the order in which weights lie in memory: panels of eight rows, interleaved so that one vector register holds
//! the same columns of all eight. Kernels of every instruction set read this one order.
//!
//! Quantized panels interleave four bytes of each row at a time. For one block of 32 columns:
//!
//! | type | bytes | parts |
//! |---|---|---|
//! | Q4_0 | 144 | 8 scales (half), 4 chunks of nibbles |
//! | Q4_1 | 160 | 8 scales, 8 minima (half), 4 chunks of nibbles |
//! | Q8_0 | 272 | 8 scales (half), 8 chunks of bytes |
//! | Q4_K | 144 | 8 scales, 8 minima (byte), 4 chunks of nibbles; every 8 blocks are preceded by 8 d and 8 dmin (half) |
//! | Q6_K | 208 | 8 pairs of scales (byte), 4 chunks of nibbles, 2 chunks of bit pairs; every 8 blocks are preceded by 8 d (half) |
//!
//! Chunk c of nibbles holds, for row r at bytes 4r..4r+4, columns 8c..8c+4 in the low and 8c+4..8c+8 in the high
//! nibbles. Chunk c of bytes holds columns 4c..4c+4. Chunk h of bit pairs holds columns 16h+4p+j in bits 2p of byte 4r+j.
//! Dense panels hold one column of all eight rows after another.

pub mod layout;

use self::layout::{dense, q4_0, q4_1, q4_k, q6_k, q8_0};
use crate::memory::{Piece, Shelf};
use crate::pool::share;
use mettle_plan::BackendError;
use mettle_tensor::{DType, TensorView, blocks};

/// Rows in a panel: one f32 result each fills an AVX2 register, two panels an AVX-512 one.
pub const PANEL: usize = 8;

/// Columns that share an activation scale.
pub const BLOCK: usize = 32;

/// A matrix `[rows, columns]` in panel order, the last panel padded with zero rows.
pub struct PackedMatrix {
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    pub panel_bytes: usize,
    data: Piece,
}

impl PackedMatrix {
    /// Repacks a matrix straight from the file's bytes onto the shelf, split over `threads`.
    pub fn pack(
        tensor: TensorView<'_>,
        threads: usize,
        shelf: &mut Shelf,
    ) -> Result<PackedMatrix, BackendError> {
        let columns = *tensor.shape.last().expect("a tensor has a dimension");
        let rows = tensor.shape[..tensor.shape.len() - 1].iter().product();
        let row_bytes =
            tensor
                .dtype
                .row_bytes(columns)
                .ok_or_else(|| BackendError::Unsupported {
                    backend: "cpu",
                    what: format!(
                        "{} rows of {columns} columns: not whole blocks",
                        tensor.dtype
                    ),
                })?;
        let panels = usize::div_ceil(rows, PANEL);
        let panel_bytes = panel_bytes(tensor.dtype, columns);
        let mut data = shelf.take("packed weights", panels * panel_bytes)?;
        let zeros = vec![0; row_bytes];
        let (dtype, bytes) = (tensor.dtype, &tensor.bytes[..]);
        let row = |r: usize| match r < rows {
            true => &bytes[r * row_bytes..(r + 1) * row_bytes],
            false => &zeros[..],
        };
        let threads = threads.min(panels).max(1);
        std::thread::scope(|scope| {
            let mut rest = data.as_mut_slice();
            for index in 0..threads {
                let mine = share(panels, index, threads);
                let (out, after) = rest.split_at_mut(mine.len() * panel_bytes);
                rest = after;
                scope.spawn(move || {
                    for (panel, out) in mine.zip(out.chunks_exact_mut(panel_bytes.max(1))) {
                        let rows: [&[u8]; PANEL] = std::array::from_fn(|r| row(panel * PANEL + r));
                        pack_panel(dtype, &rows, columns, out);
                    }
                });
            }
        });
        Ok(PackedMatrix {
            dtype,
            rows,
            columns,
            panel_bytes,
            data,
        })
    }

    pub fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    pub fn panel(&self, index: usize) -> &[u8] {
        &self.data.as_slice()[index * self.panel_bytes..(index + 1) * self.panel_bytes]
    }

    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The exact values of one row, as the file's format defines them.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let panel = self.panel(row / PANEL);
        let r = row % PANEL;
        match self.dtype {
            DType::F32 | DType::F16 | DType::BF16 => dense::read_row(self.dtype, panel, r, out),
            DType::Q4_0 => q4_0::read_row(panel, r, out),
            DType::Q4_1 => q4_1::read_row(panel, r, out),
            DType::Q8_0 => q8_0::read_row(panel, r, out),
            DType::Q4_K => q4_k::read_row(panel, r, out),
            DType::Q6_K => q6_k::read_row(panel, r, out),
        }
    }
}

fn panel_bytes(dtype: DType, columns: usize) -> usize {
    match dtype {
        DType::F32 => columns * PANEL * 4,
        DType::F16 | DType::BF16 => columns * PANEL * 2,
        DType::Q4_0 => columns / BLOCK * q4_0::BYTES,
        DType::Q4_1 => columns / BLOCK * q4_1::BYTES,
        DType::Q8_0 => columns / BLOCK * q8_0::BYTES,
        DType::Q4_K => columns / 256 * q4_k::BYTES,
        DType::Q6_K => columns / 256 * q6_k::BYTES,
    }
}

fn pack_panel(dtype: DType, rows: &[&[u8]; PANEL], columns: usize, out: &mut [u8]) {
    let block_bytes = dtype.block_bytes();
    let out_bytes = match dtype {
        DType::F32 | DType::F16 | DType::BF16 => return dense::pack(block_bytes, rows, out),
        DType::Q4_0 => q4_0::BYTES,
        DType::Q4_1 => q4_1::BYTES,
        DType::Q8_0 => q8_0::BYTES,
        DType::Q4_K => q4_k::BYTES,
        DType::Q6_K => q6_k::BYTES,
    };
    for (index, out) in out.chunks_exact_mut(out_bytes).enumerate() {
        let blocks: [&[u8]; PANEL] =
            std::array::from_fn(|r| &rows[r][index * block_bytes..(index + 1) * block_bytes]);
        match dtype {
            DType::Q4_0 => q4_0::pack(&blocks, out),
            DType::Q4_1 => q4_1::pack(&blocks, out),
            DType::Q8_0 => q8_0::pack(&blocks, out),
            DType::Q4_K => q4_k::pack(&blocks, out),
            DType::Q6_K => q6_k::pack(&blocks, out),
            DType::F32 | DType::F16 | DType::BF16 => unreachable!("dense panels are packed whole"),
        }
    }
    debug_assert_eq!(out.len(), panel_bytes(dtype, columns));
}

/// A vector (norm weights, biases) as plain `f32`.
pub fn read_vector(tensor: TensorView<'_>) -> Result<Vec<f32>, BackendError> {
    let mut values = vec![0.0; tensor.shape.iter().product()];
    blocks::dequantize(tensor.dtype, &tensor.bytes, &mut values).map_err(|error| {
        BackendError::Unsupported {
            backend: "cpu",
            what: format!("vectors stored so: {error}"),
        }
    })?;
    Ok(values)
}

/// The half at `index` of an array of halves.
pub fn half_at(bytes: &[u8], index: usize) -> f32 {
    half::f16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::random_blocks;
