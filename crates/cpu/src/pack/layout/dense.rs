//! Dense panels: column after column, eight rows each.

use crate::pack::PANEL;
use mettle_tensor::{DType, blocks};

pub fn pack(element_bytes: usize, rows: &[&[u8]; PANEL], out: &mut [u8]) {
    for (column, out) in out.chunks_exact_mut(PANEL * element_bytes).enumerate() {
        let from = column * element_bytes..(column + 1) * element_bytes;
        for (r, out) in out.chunks_exact_mut(element_bytes).enumerate() {
            out.copy_from_slice(&rows[r][from.clone()]);
        }
    }
}

pub fn read_row(dtype: DType, panel: &[u8], row: usize, out: &mut [f32]) {
    for (column, o) in out.iter_mut().enumerate() {
        *o = value(dtype, panel, row, column);
    }
}

pub fn value(dtype: DType, panel: &[u8], row: usize, column: usize) -> f32 {
    let size = dtype.block_bytes();
    let at = (column * PANEL + row) * size;
    let mut value = 0.0;
    blocks::dequantize(
        dtype,
        &panel[at..at + size],
        std::slice::from_mut(&mut value),
    )
    .expect("one dense element is one block");
    value
}
