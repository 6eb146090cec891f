//! Owns where one block of each row of a tile of AVX-512 lies.

use super::MOST_ROWS;
use crate::kernels::activations::{QuantizedBlock, RowsOfBlocks};
use std::arch::x86_64::*;

const FOURS: usize = MOST_ROWS.div_ceil(4);

/// One block of each row of a tile. There are not registers for a pointer to each: of every four rows, one points at the row before
/// them, and the distance of one row and of three reach the rest.
#[derive(Clone, Copy)]
pub struct Column {
    before: [*const u8; FOURS],
    stride: usize,
    three: usize,
}

/// How often a row is how far from where its four begin: once, twice, once the distance of three, four times.
pub const fn times(row: usize) -> usize {
    [1, 2, 1, 4][row % 4]
}

impl Column {
    #[inline(always)]
    pub fn new(rows: RowsOfBlocks, block: usize) -> Column {
        let stride = rows.stride();
        let first = rows.of_first(block).cast::<u8>().wrapping_sub(stride);
        // No closures here: they would not be compiled for the caller's instructions.
        let mut before = [first; FOURS];
        for four in 1..FOURS {
            before[four] = first.wrapping_add(4 * four * stride);
        }
        Column {
            before,
            stride,
            three: 3 * stride,
        }
    }

    /// To the next block.
    #[inline(always)]
    pub fn advance(&mut self) {
        for four in 0..FOURS {
            self.before[four] = self.before[four].wrapping_add(size_of::<QuantizedBlock>());
        }
    }

    /// The row before a row's four.
    #[inline(always)]
    pub fn before<const ROW: usize>(&self) -> *const u8 {
        self.before[ROW / 4]
    }

    /// What to go on from there, [`times`] its number.
    #[inline(always)]
    pub fn distance<const ROW: usize>(&self) -> usize {
        if ROW % 4 == 2 {
            self.three
        } else {
            self.stride
        }
    }

    /// A row's value at byte `OFFSET` for all lanes, loaded by an instruction of its own.
    ///
    /// # Safety
    /// It exists; the processor has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub unsafe fn of_all<const ROW: usize, const OFFSET: usize>(&self) -> __m512 {
        let values;
        // SAFETY: the caller's promise.
        unsafe {
            std::arch::asm!(
                "vbroadcastss {values}, dword ptr [{x} + {distance} * {times} + {offset}]",
                values = out(zmm_reg) values,
                x = in(reg) self.before::<ROW>(),
                distance = in(reg) self.distance::<ROW>(),
                times = const times(ROW),
                offset = const OFFSET,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        values
    }
}
