//! Quantized weights as registers of signed bytes: one implementation per type, for few and for many rows alike.
//!
//! A register holds four columns of four rows, as the panels do. Every type's integers fit a byte; the sub-scales of Q6_K
//! multiply the exact product of 16 columns, which keeps the sum below 2 * 128 * 16 * 32 * 16256 < 2^31.

use super::dot::Dot;
use crate::lanes::widen_halves;
use crate::pack::PANEL;
use crate::pack::layout::{q4_0, q4_1, q4_k, q6_k, q8_0};
use std::arch::aarch64::*;

/// A value for each row of a panel.
pub type Eight = [float32x4_t; 2];

pub trait Unpack {
    /// Blocks that share a header, and their bytes with it.
    const GROUP_BLOCKS: usize = 1;
    const GROUP_BYTES: usize;
    /// Bytes before the first block of a group, and of each block.
    const HEADER: usize = 0;
    const BLOCK_BYTES: usize = Self::GROUP_BYTES;
    /// Whether a value is `scale * integer + offset`, or just `scale * integer`.
    const HAS_OFFSET: bool = false;
    /// Whether each half of a block has an integer scale of its own.
    const HAS_SUB_SCALES: bool = false;

    /// Scales and offsets of the eight rows.
    ///
    /// # Safety
    /// `group` is a whole group in this type's layout, and `block` one of its blocks (so for all).
    unsafe fn scales(group: *const u8, block: *const u8) -> (Eight, Eight);

    /// Columns `8c..8c + 8` of a block: the first four of rows 0..4, of rows 4..8, the last four of rows 0..4, of 4..8.
    ///
    /// # Safety
    /// As for `scales`, and `c < 4`.
    unsafe fn eight(block: *const u8, c: usize) -> [int8x16_t; 4];

    /// The same in the order that `D` multiplies.
    ///
    /// # Safety
    /// As for `eight`, and the processor has what `D` needs.
    #[inline(always)]
    unsafe fn arranged<D: Dot>(block: *const u8, c: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { D::arrange(Self::eight(block, c)) }
    }

    /// The scales of columns `16 * half..16 * half + 16`.
    ///
    /// # Safety
    /// As for `scales`, and `half < 2`.
    unsafe fn sub_scales(_: *const u8, _: usize) -> [int32x4_t; 2] {
        unreachable!("this type has none")
    }
}

/// Eight scales, which are all there is.
#[inline(always)]
unsafe fn scales_alone(p: *const u8) -> (Eight, Eight) {
    // SAFETY: the caller reads inside its block.
    let scales = unsafe { widen_halves(p.cast()) };
    (scales, scales)
}

/// Eight scales, then eight offsets.
#[inline(always)]
unsafe fn scales_and_offsets(p: *const u8) -> (Eight, Eight) {
    // SAFETY: the caller reads inside its block.
    unsafe {
        (
            widen_halves(p.cast()),
            widen_halves(p.add(2 * PANEL).cast()),
        )
    }
}

/// 64 bytes as they are.
#[inline(always)]
pub unsafe fn four_registers(p: *const u8) -> [int8x16_t; 4] {
    // SAFETY: the caller reads inside its block.
    unsafe {
        let p = p.cast();
        [
            vld1q_s8(p),
            vld1q_s8(p.add(16)),
            vld1q_s8(p.add(32)),
            vld1q_s8(p.add(48)),
        ]
    }
}

/// Eight bytes, widened.
#[inline(always)]
unsafe fn bytes(p: *const u8) -> Eight {
    // SAFETY: the caller reads inside its block.
    unsafe {
        let words = vmovl_u8(vld1_u8(p));
        [
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))),
            vcvtq_f32_u32(vmovl_high_u16(words)),
        ]
    }
}

/// The 4-bit values of chunk `c`, each in a byte.
#[inline(always)]
unsafe fn nibbles(chunks: *const u8, c: usize) -> [uint8x16_t; 4] {
    // SAFETY: the caller gives four chunks of 32 bytes.
    unsafe {
        let (top, bottom) = (
            vld1q_u8(chunks.add(32 * c)),
            vld1q_u8(chunks.add(32 * c + 16)),
        );
        let mask = vdupq_n_u8(15);
        [
            vandq_u8(top, mask),
            vandq_u8(bottom, mask),
            vshrq_n_u8::<4>(top),
            vshrq_n_u8::<4>(bottom),
        ]
    }
}

/// Values minus an offset, as signed bytes.
#[inline(always)]
unsafe fn minus(values: [uint8x16_t; 4], offset: u8) -> [int8x16_t; 4] {
    // SAFETY: every processor of this architecture has NEON.
    unsafe {
        let mut signed = [vdupq_n_s8(0); 4];
        for i in 0..4 {
            signed[i] = vreinterpretq_s8_u8(vsubq_u8(values[i], vdupq_n_u8(offset)));
        }
        signed
    }
}

pub struct Q4_0;

impl Unpack for Q4_0 {
    const GROUP_BYTES: usize = q4_0::BYTES;

    #[inline(always)]
    unsafe fn scales(_: *const u8, block: *const u8) -> (Eight, Eight) {
        // SAFETY: the caller's promise.
        unsafe { scales_alone(block) }
    }

    #[inline(always)]
    unsafe fn eight(block: *const u8, c: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { minus(nibbles(block.add(q4_0::NIBBLES), c), 8) }
    }
}

pub struct Q4_1;

impl Unpack for Q4_1 {
    const GROUP_BYTES: usize = q4_1::BYTES;
    const HAS_OFFSET: bool = true;

    #[inline(always)]
    unsafe fn scales(_: *const u8, block: *const u8) -> (Eight, Eight) {
        // SAFETY: the caller's promise.
        unsafe { scales_and_offsets(block) }
    }

    #[inline(always)]
    unsafe fn eight(block: *const u8, c: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { minus(nibbles(block.add(q4_1::NIBBLES), c), 0) }
    }
}

pub struct Q8_0;

impl Unpack for Q8_0 {
    const GROUP_BYTES: usize = q8_0::BYTES;

    #[inline(always)]
    unsafe fn scales(_: *const u8, block: *const u8) -> (Eight, Eight) {
        // SAFETY: the caller's promise.
        unsafe { scales_alone(block) }
    }

    #[inline(always)]
    unsafe fn eight(block: *const u8, c: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { four_registers(block.add(q8_0::QUANTS + 64 * c)) }
    }
}

pub struct Q4K;

impl Unpack for Q4K {
    const GROUP_BLOCKS: usize = 8;
    const GROUP_BYTES: usize = q4_k::BYTES;
    const HEADER: usize = q4_k::HEADER;
    const BLOCK_BYTES: usize = q4_k::BLOCK_BYTES;
    const HAS_OFFSET: bool = true;

    #[inline(always)]
    unsafe fn scales(group: *const u8, block: *const u8) -> (Eight, Eight) {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut scale, mut offset) = scales_and_offsets(group);
            let (factor, min) = (bytes(block), bytes(block.add(PANEL)));
            for i in 0..2 {
                scale[i] = vmulq_f32(scale[i], factor[i]);
                offset[i] = vnegq_f32(vmulq_f32(offset[i], min[i]));
            }
            (scale, offset)
        }
    }

    #[inline(always)]
    unsafe fn eight(block: *const u8, c: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe { minus(nibbles(block.add(2 * PANEL), c), 0) }
    }
}

pub struct Q6K;

impl Unpack for Q6K {
    const GROUP_BLOCKS: usize = 8;
    const GROUP_BYTES: usize = q6_k::BYTES;
    const HEADER: usize = q6_k::HEADER;
    const BLOCK_BYTES: usize = q6_k::BLOCK_BYTES;
    const HAS_SUB_SCALES: bool = true;

    #[inline(always)]
    unsafe fn scales(group: *const u8, _: *const u8) -> (Eight, Eight) {
        // SAFETY: the caller's promise.
        unsafe { scales_alone(group) }
    }

    #[inline(always)]
    unsafe fn eight(block: *const u8, c: usize) -> [int8x16_t; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let mut values = nibbles(block.add(2 * PANEL), c);
            let mask = vdupq_n_u8(0x30);
            for rows in 0..2 {
                let high = vld1q_u8(block.add(q6_k::HIGH + 32 * (c / 2) + 16 * rows));
                // Bit pairs 2(c % 2) and 2(c % 2) + 1 of each byte, moved to bits 4 and 5.
                let (first, second) = match c % 2 {
                    0 => (vshlq_n_u8::<4>(high), vshlq_n_u8::<2>(high)),
                    _ => (high, vshrq_n_u8::<2>(high)),
                };
                values[rows] = vorrq_u8(values[rows], vandq_u8(first, mask));
                values[2 + rows] = vorrq_u8(values[2 + rows], vandq_u8(second, mask));
            }
            minus(values, 32)
        }
    }

    #[inline(always)]
    unsafe fn sub_scales(block: *const u8, half: usize) -> [int32x4_t; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let pairs = vreinterpretq_s16_s8(vld1q_s8(block.cast()));
            // Little end first: the scale of the first half is the low byte of its pair.
            let scales = match half {
                0 => vshrq_n_s16::<8>(vshlq_n_s16::<8>(pairs)),
                _ => vshrq_n_s16::<8>(pairs),
            };
            [vmovl_s16(vget_low_s16(scales)), vmovl_high_s16(scales)]
        }
    }
}
