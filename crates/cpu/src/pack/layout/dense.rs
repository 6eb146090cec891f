//! Panels of types that take f32: one element after another, 16 rows each, or blocks of F8.

use super::F8;
use crate::pack::{BLOCK, PANEL};
use mettle_tensor::{DType, blocks};

pub fn panel_bytes(dtype: DType, columns: usize) -> usize {
    match dtype {
        DType::F8 => columns / BLOCK * F8::BLOCK_BYTES,
        _ => columns * PANEL * dtype.block_bytes(),
    }
}

/// Packs plain elements; each goes to its column in the model.
pub fn pack(element_bytes: usize, rows: &[&[u8]; PANEL], order: Option<&[u32]>, out: &mut [u8]) {
    let columns = out.len() / (PANEL * element_bytes);
    for column in 0..columns {
        let to = order.map_or(column, |order| order[column] as usize) * PANEL * element_bytes;
        let out = &mut out[to..to + PANEL * element_bytes];
        for (r, out) in out.chunks_exact_mut(element_bytes).enumerate() {
            out.copy_from_slice(&rows[r][column * element_bytes..(column + 1) * element_bytes]);
        }
    }
}

pub fn value(dtype: DType, panel: &[u8], row: usize, column: usize) -> f32 {
    if dtype == DType::F8 {
        return F8::value(panel, row, column);
    }
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
