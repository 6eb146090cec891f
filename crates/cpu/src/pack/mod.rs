//! Owns the order in which weights lie in memory: panels of 16 rows, interleaved so that a vector register holds the same
//! columns of all of them, or of the first or the last eight. Kernels of every instruction set read this one order.
//!
//! Panels of integers are made of groups of blocks of 32 columns; `layout` has a file for each type. Parts of a block are
//! chunks that have four bytes of each row: chunk c of nibbles holds, for row r at bytes 4r..4r+4, columns 8c..8c+4 in the
//! low and 8c+4..8c+8 in the high nibbles; chunk c of bytes holds columns 4c..4c+4; bit pairs and single bits have columns
//! four further in the next higher bits. Dense panels hold one column of all 16 rows after another.

pub mod layout;

use self::layout::{F8, Layout, dense, with_layout};
use crate::memory::{Piece, Shelf};
use crate::pool::share;
use mettle_plan::BackendError;
use mettle_tensor::{DType, TensorView, blocks};

/// Rows in a panel: one f32 result each fills an AVX-512 register, two AVX2 ones, four of NEON.
pub const PANEL: usize = 16;

/// Bytes of a chunk.
pub const CHUNK: usize = 4 * PANEL;

/// Columns that share an activation scale.
pub const BLOCK: usize = 32;

/// A matrix `[rows, columns]` in panel order, the last panel padded with zero rows.
pub struct PackedMatrix {
    pub dtype: DType,
    pub rows: usize,
    pub columns: usize,
    pub panel_bytes: usize,
    /// Where columns do not lie in the model's order: column `j` here is the model's column `order[j]`.
    pub order: Option<Box<[u32]>>,
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
        check_order(&tensor, columns)?;
        let panels = usize::div_ceil(rows, PANEL);
        let panel_bytes = panel_bytes(tensor.dtype, columns);
        let mut data = shelf.take("packed weights", panels * panel_bytes)?;
        let zeros = vec![0; row_bytes];
        let tensor = &tensor;
        let row = |r: usize| match r < rows {
            true => &tensor.bytes[r * row_bytes..(r + 1) * row_bytes],
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
                        pack_panel(tensor, &rows, out);
                    }
                });
            }
        });
        Ok(PackedMatrix {
            dtype: tensor.dtype,
            rows,
            columns,
            panel_bytes,
            // Dense columns were put in the model's order.
            order: tensor
                .order
                .filter(|_| takes_integers(tensor.dtype))
                .map(Box::from),
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

    /// Whether activations must be quantized to be multiplied with it.
    pub fn takes_integers(&self) -> bool {
        takes_integers(self.dtype)
    }

    /// Whether quantized activations need sums of their groups beside them.
    pub fn takes_sums(&self) -> bool {
        with_layout!(self.dtype, L => L::OFFSETS == 16, dense => false)
    }

    /// The exact values of one row, as the file's format defines them, in the model's order.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let (panel, r) = (self.panel(row / PANEL), row % PANEL);
        let place = |column: usize| match &self.order {
            Some(order) => order[column] as usize,
            None => column,
        };
        with_layout!(
            self.dtype,
            L => {
                let columns = L::GROUP_BLOCKS * BLOCK;
                for (g, group) in panel.chunks_exact(L::GROUP_BYTES).enumerate() {
                    for column in 0..columns {
                        out[place(g * columns + column)] = L::value(group, r, column);
                    }
                }
            },
            dense => for (column, o) in out.iter_mut().enumerate() {
                *o = dense::value(self.dtype, panel, r, column);
            }
        )
    }
}

fn takes_integers(dtype: DType) -> bool {
    with_layout!(dtype, L => L::DTYPE == dtype, dense => false)
}

fn panel_bytes(dtype: DType, columns: usize) -> usize {
    with_layout!(
        dtype,
        L => columns / BLOCK / L::GROUP_BLOCKS * L::GROUP_BYTES,
        dense => dense::panel_bytes(dtype, columns)
    )
}

fn pack_panel(tensor: &TensorView<'_>, rows: &[&[u8]; PANEL], out: &mut [u8]) {
    let pack_blocks = |out: &mut [u8], bytes: usize, pack: fn(&[&[u8]; PANEL], &mut [u8])| {
        let block_bytes = tensor.dtype.block_bytes();
        for (index, out) in out.chunks_exact_mut(bytes).enumerate() {
            let from = index * block_bytes..(index + 1) * block_bytes;
            pack(&std::array::from_fn(|r| &rows[r][from.clone()]), out);
        }
    };
    with_layout!(
        tensor.dtype,
        L => pack_blocks(out, L::GROUP_BYTES, L::pack),
        dense => match tensor.dtype {
            DType::F8 => pack_blocks(out, F8::BLOCK_BYTES, F8::pack),
            plain => dense::pack(plain.block_bytes(), rows, tensor.order, out),
        }
    )
}

/// Every column of the model must be stored once.
fn check_order(tensor: &TensorView<'_>, columns: usize) -> Result<(), BackendError> {
    let refuse = |what: String| {
        Err(BackendError::Unsupported {
            backend: "cpu",
            what,
        })
    };
    let Some(order) = tensor.order else {
        return Ok(());
    };
    if tensor.dtype == DType::F8 {
        return refuse("F8 weights with columns in an order of their own".into());
    }
    let mut seen = vec![false; columns];
    for column in order {
        match seen.get_mut(*column as usize) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return refuse(format!("an order with column {column} twice")),
            None => return refuse(format!("column {column} in an order of {columns}")),
        }
    }
    match order.len() == columns {
        true => Ok(()),
        false => refuse(format!("an order of {} columns for {columns}", order.len())),
    }
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

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::random_blocks;
