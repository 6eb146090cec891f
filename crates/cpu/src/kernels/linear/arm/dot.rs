//! Exact products of eight columns of weights with activations, one implementation per instruction set.
//!
//! Weights are signed bytes, activations `256 * high + low` in signed bytes. Where bytes are multiplied, high and low have
//! sums of their own: for a block of 32 columns at most 32 * 128 * 64 = 2^18 and 32 * 128 * 128 = 2^19. Put together that
//! is the product itself, at most 32 * 128 * 16256 < 2^27: nothing overflows 32 bits.

use std::arch::aarch64::*;

pub trait Dot {
    /// Rows of the largest tile whose sums stay in the 32 registers.
    const ROWS: usize;
    /// What is best for a row alone, straight from packed weights.
    type Single: Dot;
    /// Registers.
    type Sums: Copy;

    /// Eight columns of a panel in the order in which this set multiplies. They come as four columns of the first four
    /// rows, of the last four, and the next four columns alike.
    ///
    /// # Safety
    /// The processor has the instructions; so for all.
    #[inline(always)]
    unsafe fn arrange(w: [int8x16_t; 4]) -> [int8x16_t; 4] {
        w
    }

    /// Adds the products of eight arranged columns with one row's eight high bytes and eight low bytes.
    unsafe fn add(sums: &mut Self::Sums, w: &[int8x16_t; 4], x: int8x16_t);

    /// The products of the eight rows of the panel.
    unsafe fn total(sums: &Self::Sums) -> [int32x4_t; 2];
}

/// Plain NEON: all widened to 16 bits. A sum is one row of the panel, its lanes every fourth column.
pub struct Words;

impl Dot for Words {
    const ROWS: usize = 2;
    type Single = Words;
    type Sums = [int32x4_t; 8];

    #[inline(always)]
    unsafe fn add(sums: &mut [int32x4_t; 8], w: &[int8x16_t; 4], x: int8x16_t) {
        // SAFETY: every processor of this architecture has NEON.
        unsafe {
            let high = vreinterpretq_s16_s8(vzip1q_s8(vdupq_n_s8(0), x));
            let x = vreinterpretq_s64_s16(vaddw_high_s8(high, x));
            // Four columns, twice: for the two rows in a register of widened weights.
            let x = [
                vreinterpretq_s16_s64(vdupq_laneq_s64::<0>(x)),
                vreinterpretq_s16_s64(vdupq_laneq_s64::<1>(x)),
            ];
            for i in 0..4 {
                let (x, first) = (x[i / 2], 4 * (i % 2));
                let rows = [vmovl_s8(vget_low_s8(w[i])), vmovl_high_s8(w[i])];
                for r in 0..2 {
                    let (even, odd) = (first + 2 * r, first + 2 * r + 1);
                    sums[even] = vmlal_s16(sums[even], vget_low_s16(rows[r]), vget_low_s16(x));
                    sums[odd] = vmlal_high_s16(sums[odd], rows[r], x);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn total(s: &[int32x4_t; 8]) -> [int32x4_t; 2] {
        // SAFETY: every processor of this architecture has NEON.
        unsafe {
            [
                vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3])),
                vpaddq_s32(vpaddq_s32(s[4], s[5]), vpaddq_s32(s[6], s[7])),
            ]
        }
    }
}

/// With dotprod: four columns of four rows an instruction. Sums of the high bytes of both four rows of eight, then of the
/// low bytes.
pub struct Bytes;

impl Dot for Bytes {
    const ROWS: usize = 4;
    type Single = Bytes;
    type Sums = [int32x4_t; 4];

    #[inline(always)]
    unsafe fn add(sums: &mut [int32x4_t; 4], w: &[int8x16_t; 4], x: int8x16_t) {
        // SAFETY: the caller's promise.
        unsafe {
            for half in 0..2 {
                sums[half] = sdot::<0>(sums[half], w[half], x);
                sums[2 + half] = sdot::<2>(sums[2 + half], w[half], x);
            }
            for half in 0..2 {
                sums[half] = sdot::<1>(sums[half], w[2 + half], x);
                sums[2 + half] = sdot::<3>(sums[2 + half], w[2 + half], x);
            }
        }
    }

    #[inline(always)]
    unsafe fn total(s: &[int32x4_t; 4]) -> [int32x4_t; 2] {
        // SAFETY: every processor of this architecture has NEON.
        unsafe { [high_and_low(s[0], s[2]), high_and_low(s[1], s[3])] }
    }
}

/// With i8mm: eight columns of two rows an instruction, with high and low bytes at once. A row alone gains nothing from
/// it, since rearranging the weights takes as many instructions as it saves.
pub struct Matrices;

impl Dot for Matrices {
    const ROWS: usize = 4;
    type Single = Bytes;
    type Sums = [int32x4_t; 4];

    #[inline(always)]
    unsafe fn arrange(w: [int8x16_t; 4]) -> [int8x16_t; 4] {
        // SAFETY: every processor of this architecture has NEON.
        unsafe {
            let w = w.map(|w| vreinterpretq_s32_s8(w));
            let pairs = [
                vzip1q_s32(w[0], w[2]),
                vzip2q_s32(w[0], w[2]),
                vzip1q_s32(w[1], w[3]),
                vzip2q_s32(w[1], w[3]),
            ];
            pairs.map(|w| vreinterpretq_s8_s32(w))
        }
    }

    #[inline(always)]
    unsafe fn add(sums: &mut [int32x4_t; 4], w: &[int8x16_t; 4], x: int8x16_t) {
        for i in 0..4 {
            // SAFETY: the caller's promise.
            sums[i] = unsafe { smmla(sums[i], w[i], x) };
        }
    }

    #[inline(always)]
    unsafe fn total(s: &[int32x4_t; 4]) -> [int32x4_t; 2] {
        // SAFETY: every processor of this architecture has NEON.
        unsafe {
            [
                high_and_low(vuzp1q_s32(s[0], s[1]), vuzp2q_s32(s[0], s[1])),
                high_and_low(vuzp1q_s32(s[2], s[3]), vuzp2q_s32(s[2], s[3])),
            ]
        }
    }
}

#[inline(always)]
unsafe fn high_and_low(high: int32x4_t, low: int32x4_t) -> int32x4_t {
    // SAFETY: every processor of this architecture has NEON.
    unsafe { vaddq_s32(vshlq_n_s32::<8>(high), low) }
}

/// Adds to each lane the products of its four bytes with the four bytes at `LANE` of `x`. The intrinsic is not stable.
///
/// # Safety
/// The processor has dotprod.
#[inline]
#[target_feature(enable = "dotprod")]
unsafe fn sdot<const LANE: usize>(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: it only computes.
    unsafe {
        std::arch::asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            w = in(vreg) w,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Adds the products of two rows of eight bytes with the two of `x`: first with first, first with second, second with
/// first, second with second. The intrinsic is not stable.
///
/// # Safety
/// The processor has i8mm.
#[inline]
#[target_feature(enable = "i8mm")]
unsafe fn smmla(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: it only computes.
    unsafe {
        std::arch::asm!(
            "smmla {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum,
            w = in(vreg) w,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
