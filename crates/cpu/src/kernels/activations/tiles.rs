//! Owns quantized rows in the form that AMX multiplies: an integer is `high + low`, two bf16 that are both exact, since the high
//! one is a multiple of 128 up to 127 times and the low one at most 64.

use super::QuantizedBlock;
use crate::memory::AlignedBytes;
use mettle_plan::BackendError;
use std::arch::x86_64::*;

/// Bytes of a block: a row of a tile of high parts, then one of low parts.
pub const BLOCK_BYTES: usize = 2 * 64;

/// Rows that kernels may read behind one that is there: they load tiles of 16.
const ROWS_BEHIND: usize = 15;

/// A block's scale and sum.
pub type Factors = [f32; 2];

pub struct TileRows {
    data: AlignedBytes,
    /// `[block][row]`: kernels take those of many rows.
    factors: AlignedBytes,
    /// The last ones are nobody's.
    rows: usize,
    blocks: usize,
}

impl TileRows {
    /// For rows of so many blocks at the most.
    pub fn new(rows: usize, blocks: usize) -> Result<TileRows, BackendError> {
        let rows = rows.saturating_add(ROWS_BEHIND);
        let room =
            |bytes| AlignedBytes::zeroed("quantized activations", rows.saturating_mul(bytes));
        Ok(TileRows {
            data: room(stride_of(blocks))?,
            factors: room(blocks * size_of::<Factors>())?,
            rows,
            blocks,
        })
    }

    pub fn bytes(&self) -> usize {
        self.data.len() + self.factors.len()
    }

    /// Factors of a block: as many lie between one and the next.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes from one row to the next.
    pub fn stride(&self) -> usize {
        stride_of(self.blocks)
    }

    /// The high part of a row's block. It and those of the next 15 rows can be read.
    pub fn block(&self, row: usize, block: usize) -> *mut u8 {
        assert!(row + ROWS_BEHIND < self.rows && block < self.blocks);
        // SAFETY: just asserted to be inside.
        unsafe {
            self.data
                .base()
                .add(row * self.stride() + block * BLOCK_BYTES)
        }
    }

    /// Where factors of a row's block lie, and behind them those of the next 15 rows.
    pub fn factors(&self, row: usize, block: usize) -> *mut Factors {
        assert!(row + ROWS_BEHIND < self.rows && block < self.blocks);
        // SAFETY: just asserted to be inside.
        unsafe {
            self.factors
                .base()
                .cast::<Factors>()
                .add(block * self.rows + row)
        }
    }

    /// # Safety
    /// No other thread touches the row meanwhile; the processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub unsafe fn write(&self, row: usize, blocks: &[QuantizedBlock]) {
        for (b, block) in blocks.iter().enumerate() {
            // SAFETY: both places were asserted to be inside; the caller's promise.
            unsafe {
                let integers = _mm512_loadu_si512(block.integers.as_ptr().cast());
                let (high, low) = halves(integers);
                let to = self.block(row, b);
                _mm512_store_si512(to.cast(), to_brain_halves(high));
                _mm512_store_si512(to.add(64).cast(), to_brain_halves(low));
                *self.factors(row, b) = [block.scale, block.sum];
            }
        }
    }

    /// Copies so many blocks of a row to another.
    ///
    /// # Safety
    /// No other thread touches row `to`, or writes row `from`, meanwhile.
    pub unsafe fn copy(&self, from: usize, to: usize, blocks: usize) {
        for b in 0..blocks {
            // SAFETY: both places were asserted to be inside; the caller's promise. They may be the same.
            unsafe {
                std::ptr::copy(self.block(from, b), self.block(to, b), BLOCK_BYTES);
                *self.factors(to, b) = *self.factors(from, b);
            }
        }
    }
}

/// An odd number of lines, so that the rows of a tile do not fall on the same lines of a cache.
fn stride_of(blocks: usize) -> usize {
    blocks * BLOCK_BYTES + 64
}

/// 16-bit integers as the multiples of 128 next to them, and what is left: at most 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn halves(integers: __m512i) -> (__m512i, __m512i) {
    let rounded = _mm512_add_epi16(integers, _mm512_set1_epi16(64));
    let high = _mm512_and_si512(rounded, _mm512_set1_epi16(-128));
    (high, _mm512_sub_epi16(integers, high))
}

/// 16-bit integers as bf16. Those that have no more than eight bits behind their first are exact.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn to_brain_halves(integers: __m512i) -> __m512i {
    let odd = _mm512_cvtepi32_ps(_mm512_srai_epi32::<16>(integers));
    let even = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(integers));
    let even = _mm512_castps_si512(_mm512_cvtepi32_ps(even));
    // The low half of an exact one is zero.
    _mm512_or_si512(_mm512_castps_si512(odd), _mm512_srli_epi32::<16>(even))
}
