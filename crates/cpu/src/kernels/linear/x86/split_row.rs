//! A row of activations as bytes: an integer is `128 * high + low`.
//!
//! What products of one type do not take lies elsewhere: the less a row takes of a first-level cache, the sooner it finds room
//! beside the panels that pass through. Q2_K of 4096 columns, whose panels have 21 KB, comes at 26.9 GB/s a core (Zen 4): it
//! reads 72 bytes of the row a block. In structs with the other types' parts, 81 bytes a block, it was 25; with 94 bytes 23.4.

use crate::kernels::activations::QuantizedBlock;
use crate::memory::AlignedBytes;
use crate::pack::BLOCK;
use mettle_plan::BackendError;
use std::arch::x86_64::*;

/// The bytes of `N` columns; those of a block are a line of a cache.
#[repr(C)]
pub struct SplitBytes<const N: usize> {
    pub high: [i8; N],
    pub low: [i8; N],
}

/// A block of a row.
pub type SplitBlock = SplitBytes<BLOCK>;

/// Columns of a group.
const GROUP: usize = 256;

/// The sums of 16 times 16 columns, which a group's 16 offsets take.
pub type SplitSums = SplitBytes<16>;

/// One thread's room for a row.
pub struct SplitRow {
    blocks: AlignedBytes,
    scales: AlignedBytes,
    sums: AlignedBytes,
    less_of_halves: AlignedBytes,
    less_of_all: AlignedBytes,
    groups: AlignedBytes,
    group_scales: AlignedBytes,
    columns: usize,
    filled_groups: usize,
}

/// Where its parts lie: one for each block, or each group of 256 columns.
#[derive(Clone, Copy)]
pub struct Parts {
    pub blocks: *mut SplitBlock,
    pub scales: *mut f32,
    /// As in `QuantizedBlock`.
    pub sums: *mut f32,
    /// For values that are too high by something: -4 times the sums of the halves' integers, and -1 times that of all.
    pub less_of_halves: *mut [i32; 2],
    pub less_of_all: *mut i32,
    pub groups: *mut SplitSums,
    pub group_scales: *mut f32,
}

impl SplitRow {
    pub fn new(columns: usize) -> Result<SplitRow, BackendError> {
        let blocks = columns / BLOCK;
        let room = |bytes| AlignedBytes::zeroed("split activations", blocks * bytes);
        let of_groups = |bytes| AlignedBytes::zeroed("split sums", columns / GROUP * bytes);
        Ok(SplitRow {
            blocks: room(size_of::<SplitBlock>())?,
            scales: room(size_of::<f32>())?,
            sums: room(size_of::<f32>())?,
            less_of_halves: room(size_of::<[i32; 2]>())?,
            less_of_all: room(size_of::<i32>())?,
            groups: of_groups(size_of::<SplitSums>())?,
            group_scales: of_groups(size_of::<f32>())?,
            columns,
            filled_groups: 0,
        })
    }

    pub fn bytes(&self) -> usize {
        let parts = [
            &self.blocks,
            &self.scales,
            &self.sums,
            &self.less_of_halves,
            &self.less_of_all,
            &self.groups,
            &self.group_scales,
        ];
        parts.iter().map(|part| part.len()).sum()
    }

    /// The most columns that a row may have.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many groups the row has sums of.
    pub fn groups(&self) -> usize {
        self.filled_groups
    }

    pub fn parts(&self) -> Parts {
        Parts {
            blocks: self.blocks.base().cast(),
            scales: self.scales.base().cast(),
            sums: self.sums.base().cast(),
            less_of_halves: self.less_of_halves.base().cast(),
            less_of_all: self.less_of_all.base().cast(),
            groups: self.groups.base().cast(),
            group_scales: self.group_scales.base().cast(),
        }
    }

    /// Splits a row and the sums of its groups.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn fill(&mut self, row: &[QuantizedBlock], groups: &[QuantizedBlock]) {
        assert!(row.len() <= self.columns / BLOCK, "{} blocks", row.len());
        assert!(groups.len() <= self.columns / GROUP);
        self.filled_groups = groups.len();
        let to = self.parts();
        for (b, block) in row.iter().enumerate() {
            let integers = block.integers.as_ptr();
            // SAFETY: asserted to be inside; `&mut self` keeps others out; the caller's promise.
            unsafe {
                let (high, low) = (
                    (&raw mut (*to.blocks.add(b)).high).cast::<i8>(),
                    (&raw mut (*to.blocks.add(b)).low).cast::<i8>(),
                );
                let first = split_sixteen(integers, high, low);
                let last = split_sixteen(integers.add(16), high.add(16), low.add(16));
                *to.scales.add(b) = block.scale;
                *to.sums.add(b) = block.sum;
                *to.less_of_halves.add(b) = [-4 * first, -4 * last];
                *to.less_of_all.add(b) = -first - last;
            }
        }
        for (g, group) in groups.iter().enumerate() {
            // SAFETY: the same.
            unsafe {
                let (high, low) = (
                    (&raw mut (*to.groups.add(g)).high).cast(),
                    (&raw mut (*to.groups.add(g)).low).cast(),
                );
                split_sixteen(group.integers.as_ptr(), high, low);
                *to.group_scales.add(g) = group.scale;
            }
        }
    }
}

/// Splits 16 integers, and gives their sum.
///
/// # Safety
/// They can be read, and as many bytes written; the processor has AVX2.
#[inline(always)]
unsafe fn split_sixteen(integers: *const i16, high_bytes: *mut i8, low_bytes: *mut i8) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let x = _mm256_loadu_si256(integers.cast());
        let high = _mm256_srai_epi16::<7>(_mm256_add_epi16(x, _mm256_set1_epi16(64)));
        let low = _mm256_sub_epi16(x, _mm256_slli_epi16::<7>(high));
        // Bytes of every eight columns, high ones first; then the order of columns in a block of activations back to their
        // own (columns 1 and 2 of every four).
        let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,
        ));
        let bytes = _mm256_shuffle_epi8(_mm256_packs_epi16(high, low), order);
        let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes);
        _mm_storeu_si128(high_bytes.cast(), _mm256_castsi256_si128(bytes));
        _mm_storeu_si128(low_bytes.cast(), _mm256_extracti128_si256::<1>(bytes));
        let sums = _mm256_madd_epi16(x, _mm256_set1_epi16(1));
        let sums = _mm_add_epi32(
            _mm256_castsi256_si128(sums),
            _mm256_extracti128_si256::<1>(sums),
        );
        let sums = _mm_hadd_epi32(sums, sums);
        _mm_cvtsi128_si32(_mm_hadd_epi32(sums, sums))
    }
}
