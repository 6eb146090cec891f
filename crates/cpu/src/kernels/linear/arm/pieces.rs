//! Owns the steps that unpacking is made of: parts of a packed block as registers of bytes or of f32.
//!
//! Registers hold eight rows of a panel, from row `r` on. Memory is given as the place of the panel's first row.

use crate::lanes::widen_halves;
use crate::pack::layout::F8;
use crate::pack::{CHUNK, PANEL};
use std::arch::aarch64::*;

/// A value for each row.
pub type Eight = [float32x4_t; 2];

/// Eight columns as bytes: the first four of the first four rows, of the last four rows, the last four columns alike.
pub type Columns = [uint8x16_t; 4];

/// Functions of registers or of memory that the caller promised to be there.
macro_rules! steps {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block)*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// What pointers point at is there.
        #[inline(always)]
        pub unsafe fn $name($($arg: $type),*) -> $out {
            // SAFETY: the caller's promise; every processor of this architecture has NEON.
            unsafe { $body }
        })*
    };
}

steps! {
    /// Eight halves, widened.
    fn halves(p: *const u8, r: usize) -> Eight {
        widen_halves(p.add(2 * r).cast())
    }

    /// Eight bf16, widened: each is the upper half of an f32.
    fn brain_halves(p: *const u8, r: usize) -> Eight {
        let (values, zero) = (vld1q_u16(p.add(2 * r).cast()), vdupq_n_u16(0));
        [
            vreinterpretq_f32_u16(vzip1q_u16(zero, values)),
            vreinterpretq_f32_u16(vzip2q_u16(zero, values)),
        ]
    }

    /// Eight floats of 8 bits (e4m3) as `F8` says.
    fn small_floats(p: *const u8, r: usize) -> Eight {
        // The sign goes to bit 31, and its copies from the bits below; exponent and fraction fall into place.
        let words = vmovl_s8(vld1_s8(p.add(r).cast()));
        let wide = [vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)];
        let bits = vdupq_n_s32(F8::BITS);
        [
            vreinterpretq_f32_s32(vandq_s32(vshlq_n_s32::<20>(wide[0]), bits)),
            vreinterpretq_f32_s32(vandq_s32(vshlq_n_s32::<20>(wide[1]), bits)),
        ]
    }

    /// Eight f32 as they are.
    fn floats(p: *const f32, r: usize) -> Eight {
        [vld1q_f32(p.add(r)), vld1q_f32(p.add(r + 4))]
    }

    /// Eight bytes, widened.
    fn widened(bytes: uint8x8_t) -> Eight {
        let words = vmovl_u8(bytes);
        [
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))),
            vcvtq_f32_u32(vmovl_high_u16(words)),
        ]
    }

    fn bytes(p: *const u8, r: usize) -> Eight {
        widened(vld1_u8(p.add(r)))
    }

    fn signed_bytes(p: *const u8, r: usize) -> Eight {
        let words = vmovl_s8(vld1_s8(p.add(r).cast()));
        [
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))),
            vcvtq_f32_s32(vmovl_high_s16(words)),
        ]
    }

    fn times(a: Eight, b: Eight) -> Eight {
        [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])]
    }

    fn negative(v: Eight) -> Eight {
        [vnegq_f32(v[0]), vnegq_f32(v[1])]
    }

    /// 64 bytes as they are.
    fn four_registers(p: *const u8) -> [int8x16_t; 4] {
        let p = p.cast();
        [
            vld1q_s8(p),
            vld1q_s8(p.add(16)),
            vld1q_s8(p.add(32)),
            vld1q_s8(p.add(48)),
        ]
    }

    /// A chunk: of the first four rows and of the last.
    fn chunk(chunks: *const u8, number: usize, r: usize) -> (uint8x16_t, uint8x16_t) {
        let p = chunks.add(CHUNK * number + 4 * r);
        (vld1q_u8(p), vld1q_u8(p.add(16)))
    }

    /// Bytes 8c to 8c + 8 of each row, as they are.
    fn byte_chunks(chunks: *const u8, c: usize, r: usize) -> [int8x16_t; 4] {
        let (first, last) = (chunk(chunks, 2 * c, r), chunk(chunks, 2 * c + 1, r));
        minus([first.0, first.1, last.0, last.1], 0)
    }

    /// The 4-bit values of chunk `c`, each in a byte.
    fn nibbles(chunks: *const u8, c: usize, r: usize) -> Columns {
        let (top, bottom) = chunk(chunks, c, r);
        let mask = vdupq_n_u8(15);
        [
            vandq_u8(top, mask),
            vandq_u8(bottom, mask),
            vshrq_n_u8::<4>(top),
            vshrq_n_u8::<4>(bottom),
        ]
    }

    /// 2-bit values, each in a byte.
    fn bit_pairs(chunks: *const u8, c: usize, r: usize) -> Columns {
        pairs_at(chunk(chunks, c / 2, r), 4 * (c % 2), 2)
    }

    /// The pairs of bits from `bit` on, and those so much higher.
    fn pairs_at(bytes: (uint8x16_t, uint8x16_t), bit: usize, higher: usize) -> Columns {
        let (top, bottom) = bytes;
        // Shifts to the left by a negative number go to the right.
        let first = vdupq_n_s8(-(bit as i8));
        let second = vdupq_n_s8(-((bit + higher) as i8));
        let mask = vdupq_n_u8(3);
        [
            vandq_u8(vshlq_u8(top, first), mask),
            vandq_u8(vshlq_u8(bottom, first), mask),
            vandq_u8(vshlq_u8(top, second), mask),
            vandq_u8(vshlq_u8(bottom, second), mask),
        ]
    }

    /// 3-bit values, each in a byte.
    fn triples(chunks: *const u8, c: usize, r: usize) -> Columns {
        let mask = vdupq_n_u8(7);
        let mut values = [mask; 4];
        for rows in 0..2 {
            let chunks = chunks.add(4 * r + 16 * rows);
            if c < 3 {
                let bytes = vld1q_u8(chunks.add(CHUNK * c));
                values[rows] = vandq_u8(bytes, mask);
                values[2 + rows] = vandq_u8(vshrq_n_u8::<3>(bytes), mask);
            } else {
                let (high, highest) = (vdupq_n_u8(4), vld1q_u8(chunks.add(CHUNK)));
                let first = vshrq_n_u8::<6>(vld1q_u8(chunks));
                let last = vshrq_n_u8::<6>(vld1q_u8(chunks.add(2 * CHUNK)));
                values[rows] = vorrq_u8(first, vandq_u8(vshrq_n_u8::<4>(highest), high));
                values[2 + rows] = vorrq_u8(last, vandq_u8(vshrq_n_u8::<5>(highest), high));
            }
        }
        values
    }

    /// Single bits, each at bit 4 of a byte.
    fn bits(chunks: *const u8, c: usize, r: usize) -> Columns {
        let (top, bottom) = chunk(chunks, 0, r);
        let first = vdupq_n_s8(4 - 2 * c as i8);
        let second = vsubq_s8(first, vdupq_n_s8(1));
        let mask = vdupq_n_u8(0x10);
        [
            vandq_u8(vshlq_u8(top, first), mask),
            vandq_u8(vshlq_u8(bottom, first), mask),
            vandq_u8(vshlq_u8(top, second), mask),
            vandq_u8(vshlq_u8(bottom, second), mask),
        ]
    }

    fn or(a: Columns, b: Columns) -> Columns {
        [
            vorrq_u8(a[0], b[0]),
            vorrq_u8(a[1], b[1]),
            vorrq_u8(a[2], b[2]),
            vorrq_u8(a[3], b[3]),
        ]
    }

    /// Values minus an offset, as signed bytes.
    fn minus(values: Columns, offset: u8) -> [int8x16_t; 4] {
        let mut signed = [vdupq_n_s8(0); 4];
        for i in 0..4 {
            signed[i] = vreinterpretq_s8_u8(vsubq_u8(values[i], vdupq_n_u8(offset)));
        }
        signed
    }

    /// What numbers below 16 stand for.
    fn look_up(values: &[i8; 16], numbers: Columns) -> [int8x16_t; 4] {
        let table = vld1q_s8(values.as_ptr());
        [
            vqtbl1q_s8(table, numbers[0]),
            vqtbl1q_s8(table, numbers[1]),
            vqtbl1q_s8(table, numbers[2]),
            vqtbl1q_s8(table, numbers[3]),
        ]
    }

    /// The low nibbles of eight bytes, or the high ones.
    fn nibbles_of(p: *const u8, is_high: bool, r: usize) -> uint8x8_t {
        let bytes = vld1_u8(p.add(r));
        match is_high {
            false => vand_u8(bytes, vdup_n_u8(15)),
            _ => vshr_n_u8::<4>(bytes),
        }
    }

    /// The bytes of four rows from `first` on, each four times.
    fn spread(bytes: uint8x8_t, first: u8) -> uint8x16_t {
        let rows = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
        let rows = vaddq_u8(vld1q_u8(rows.as_ptr()), vdupq_n_u8(first));
        vqtbl1q_u8(vcombine_u8(bytes, bytes), rows)
    }

    /// The eight signed sub-scales of a half.
    fn signed_scales(block: *const u8, half: usize, r: usize) -> [int32x4_t; 2] {
        let words = vmovl_s8(vld1_s8(block.add(PANEL * half + r).cast()));
        [vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)]
    }
}
