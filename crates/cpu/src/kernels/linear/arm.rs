//! Products with NEON. One tile does all of them: for few rows it unpacks the weights in registers, for many it reads
//! what was unpacked once into the cache. The instruction set and the type are its parameters.

mod dense;
mod dot;
mod pieces;
mod tile;
mod unpack;
mod wide;

use self::dot::{Bytes, Dot, Matrices, Words};
use self::tile::all_tiles;
use self::unpack::Unpack;
use self::wide::{CHUNK, HALF, ROWS, Wide};
use super::{Input, Linear};
use crate::isa::Isa;
use crate::kernels::activations::QuantizedRows;
use crate::pack::layout::{F8, with_layout};
use crate::pack::{BLOCK, PANEL};
use mettle_tensor::DType;
use std::ops::Range;

pub use wide::WidePanel;

/// Rows up to which unpacking in registers costs less than writing the result down: two tiles.
const DIRECT_ROWS: usize = 8;

/// # Safety
/// As for `Linear::run`, and the processor has the instruction set.
pub unsafe fn run(linear: &Linear<'_>, isa: Isa, panels: Range<usize>, room: &mut WidePanel) {
    // SAFETY: the caller's promise, for each type alike.
    unsafe {
        match linear.input {
            Input::Quantized(x) | Input::One(x) => with_layout!(
                linear.weights.dtype,
                W => quantized::<W>(linear, isa, x, panels, room),
                dense => unreachable!("dense weights take dense activations")
            ),
            Input::Dense(x) => match linear.weights.dtype {
                DType::F32 => dense::dense::<dense::F32>(linear, x, panels),
                DType::F16 => dense::dense::<dense::F16>(linear, x, panels),
                DType::BF16 => dense::dense::<dense::Bf16>(linear, x, panels),
                DType::F8 => dense::dense::<F8>(linear, x, panels),
                integers => unreachable!("{integers} weights take quantized activations"),
            },
        }
    }
}

/// # Safety
/// As for `run`.
unsafe fn quantized<W: Unpack>(
    linear: &Linear<'_>,
    isa: Isa,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            Isa::Neon => all::<W, Words>(linear, x, panels, room),
            Isa::NeonDotprod => dotprod::<W>(linear, x, panels, room),
            Isa::NeonI8mm => i8mm::<W>(linear, x, panels, room),
            Isa::Scalar => unreachable!("scalar kernels are elsewhere"),
        }
    }
}

/// # Safety
/// As for `run`.
#[target_feature(enable = "dotprod")]
unsafe fn dotprod<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Bytes>(linear, x, panels, room) }
}

/// # Safety
/// As for `run`.
#[target_feature(enable = "dotprod,i8mm")]
unsafe fn i8mm<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Matrices>(linear, x, panels, room) }
}

/// # Safety
/// As for `run`.
#[inline(always)]
unsafe fn all<W: Unpack, D: Dot>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
) {
    let blocks = linear.weights.columns / BLOCK;
    for first_row in (0..linear.rows).step_by(ROWS) {
        let rows = first_row..linear.rows.min(first_row + ROWS);
        for panel in panels.clone() {
            let packed = linear.weights.panel(panel);
            let sums = room.cleared_sums(rows.len());
            // SAFETY: the caller's promise; a panel and a chunk of it are whole groups.
            unsafe {
                match linear.rows {
                    1 => all_tiles::<W, D, D::Single, 2>(packed, 0, x, 0..1, 0, blocks, sums),
                    ..=DIRECT_ROWS => {
                        for r in [0, HALF] {
                            let rows = rows.clone();
                            all_tiles::<W, D, D::Single, 1>(packed, r, x, rows, 0, blocks, sums);
                        }
                    }
                    _ => {
                        for r in [0, HALF] {
                            many::<W, D>(packed, r, x, rows.clone(), sums, room);
                        }
                    }
                }
                for row in rows.clone() {
                    linear.store(panel * PANEL, row, &*sums.add(row - first_row));
                }
            }
        }
    }
}

/// Half a panel, unpacked into the cache.
///
/// # Safety
/// As for `run`.
#[inline(always)]
unsafe fn many<W: Unpack, D: Dot>(
    packed: &[u8],
    r: usize,
    x: &QuantizedRows,
    rows: Range<usize>,
    sums: *mut [f32; PANEL],
    room: &mut WidePanel,
) {
    let groups = |blocks: usize| blocks / W::GROUP_BLOCKS * W::GROUP_BYTES;
    let blocks = packed.len() / W::GROUP_BYTES * W::GROUP_BLOCKS;
    for first in (0..blocks).step_by(CHUNK) {
        let count = CHUNK.min(blocks - first);
        let rows = rows.clone();
        // SAFETY: the caller's promise; a chunk is whole groups.
        unsafe {
            let wide = room.widen::<W, D>(&packed[groups(first)..groups(first + count)], r);
            all_tiles::<Wide<W>, D, D, 1>(wide, r, x, rows, first, blocks, sums);
        }
    }
}
