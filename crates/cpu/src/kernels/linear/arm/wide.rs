//! Weights unpacked into the cache, for many rows: bytes in the order of the instruction set, scales in f32.

use super::dot::Dot;
use super::pieces::{Eight, floats, four_registers};
use super::unpack::{Groups, Unpack};
use crate::memory::AlignedBytes;
use crate::pack::{BLOCK, PANEL};
use mettle_plan::BackendError;
use std::arch::aarch64::*;
use std::marker::PhantomData;

/// Blocks that are unpacked at a time, whole groups of any type: 26 KB, in first-level caches of 64 KB and more.
pub const CHUNK: usize = 64;

/// Rows that go over one chunk.
pub const ROWS: usize = 128;

/// Rows that are unpacked at a time: what registers hold.
pub const HALF: usize = 8;

/// Parts of a block of so many rows: integers, scales, offsets, two sets of sub-scales.
const SCALES: usize = BLOCK * HALF;
const OFFSETS: usize = SCALES + 4 * HALF;
const SUB_SCALES: usize = OFFSETS + 4 * HALF;
const BYTES: usize = SUB_SCALES + 2 * 4 * HALF;

/// What a group of 16 offsets starts with: those, and their units.
const UNITS: usize = 16 * HALF;
const HEADER: usize = UNITS + 4 * HALF;

/// One thread's unpacked weights, and its sums that wait between one chunk and the next.
pub struct WidePanel {
    blocks: AlignedBytes,
    sums: AlignedBytes,
}

impl WidePanel {
    pub fn new() -> Result<WidePanel, BackendError> {
        Ok(WidePanel {
            blocks: AlignedBytes::zeroed("unpacked weights", CHUNK * (BYTES + HEADER / 8))?,
            sums: AlignedBytes::zeroed("unfinished sums", ROWS * size_of::<[f32; PANEL]>())?,
        })
    }

    pub fn bytes(&self) -> usize {
        self.blocks.len() + self.sums.len()
    }

    /// The sums of up to `ROWS` rows, all zero.
    pub fn cleared_sums(&mut self, rows: usize) -> *mut [f32; PANEL] {
        self.sums.as_mut_slice()[..rows * size_of::<[f32; PANEL]>()].fill(0);
        self.sums.base().cast()
    }

    /// Unpacks the rows from `r` on of at most `CHUNK` blocks.
    ///
    /// # Safety
    /// `packed` is whole groups in the layout of `W`; the processor has what `D` needs.
    #[inline(always)]
    pub unsafe fn widen<W: Unpack, D: Dot>(&mut self, packed: &[u8], r: usize) -> &[u8] {
        let groups = packed.len() / W::GROUP_BYTES;
        let wide = &mut self.blocks.as_mut_slice()[..groups * Wide::<W>::GROUP_BYTES];
        let mut out = wide.as_mut_ptr();
        // SAFETY: the caller's promise; `wide` holds a place for each block.
        unsafe {
            for group in packed.chunks_exact(W::GROUP_BYTES) {
                if W::OFFSETS == 16 {
                    for c in 0..2 {
                        let offsets = W::arranged_offsets::<D>(group.as_ptr(), c, r);
                        for i in 0..4 {
                            vst1q_s8(out.add(64 * c + 16 * i).cast(), offsets[i]);
                        }
                    }
                    store(W::offset_units(group.as_ptr(), r), out.add(UNITS));
                    out = out.add(HEADER);
                }
                for j in 0..W::GROUP_BLOCKS {
                    let block = group.as_ptr().add(W::HEADER + j * W::BLOCK_BYTES);
                    for c in 0..4 {
                        let w = W::arranged::<D>(block, c, r);
                        for i in 0..4 {
                            vst1q_s8(out.add(64 * c + 16 * i).cast(), w[i]);
                        }
                    }
                    store(W::scales(group.as_ptr(), block, r), out.add(SCALES));
                    if W::OFFSETS == 1 {
                        store(W::offsets(group.as_ptr(), block, r), out.add(OFFSETS));
                    }
                    for half in 0..if W::HAS_SUB_SCALES { 2 } else { 0 } {
                        let scales = W::sub_scales(block, half, r);
                        for i in 0..2 {
                            let place = SUB_SCALES + 32 * half + 16 * i;
                            vst1q_s32(out.add(place).cast(), scales[i]);
                        }
                    }
                    out = out.add(BYTES);
                }
            }
        }
        wide
    }
}

/// # Safety
/// There is room for eight floats.
#[inline(always)]
unsafe fn store(values: Eight, out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        vst1q_f32(out.cast(), values[0]);
        vst1q_f32(out.add(16).cast(), values[1]);
    }
}

/// Blocks of `W` as `WidePanel` holds them.
pub struct Wide<W>(PhantomData<W>);

impl<W: Unpack> Groups for Wide<W> {
    const GROUP_BLOCKS: usize = W::GROUP_BLOCKS;
    const GROUP_BYTES: usize = Self::HEADER + W::GROUP_BLOCKS * BYTES;
    const HEADER: usize = if W::OFFSETS == 16 { HEADER } else { 0 };
    const BLOCK_BYTES: usize = BYTES;
    const OFFSETS: usize = W::OFFSETS;
    const SCALES_GROUPS: bool = W::SCALES_GROUPS;
}

/// Only the rows that were unpacked are here, wherever they came from.
impl<W: Unpack> Unpack for Wide<W> {
    const HAS_SUB_SCALES: bool = W::HAS_SUB_SCALES;

    #[inline(always)]
    unsafe fn scales(_: *const u8, block: *const u8, _: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { floats(block.add(SCALES).cast(), 0) }
    }

    #[inline(always)]
    unsafe fn offsets(_: *const u8, block: *const u8, _: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { floats(block.add(OFFSETS).cast(), 0) }
    }

    #[inline(always)]
    unsafe fn arranged_offsets<D: Dot>(group: *const u8, c: usize, _: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { four_registers(group.add(64 * c)) }
    }

    #[inline(always)]
    unsafe fn offset_units(group: *const u8, _: usize) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { floats(group.add(UNITS).cast(), 0) }
    }

    #[inline(always)]
    unsafe fn eight(block: *const u8, c: usize, _: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { four_registers(block.add(64 * c)) }
    }

    #[inline(always)]
    unsafe fn arranged<D: Dot>(block: *const u8, c: usize, r: usize) -> [int8x16_t; 4] {
        // They were when they were written.
        // SAFETY: the caller's promise.
        unsafe { Self::eight(block, c, r) }
    }

    #[inline(always)]
    unsafe fn sub_scales(block: *const u8, half: usize, _: usize) -> [int32x4_t; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let p = block.add(SUB_SCALES + 32 * half).cast();
            [vld1q_s32(p), vld1q_s32(p.add(4))]
        }
    }
}
