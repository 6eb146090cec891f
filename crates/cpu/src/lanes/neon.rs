//! Owns eight f32 in two registers of NEON.

use super::{Floats, Lanes};
use std::arch::aarch64::*;

#[derive(Clone, Copy)]
pub struct Neon([float32x4_t; 2]);

/// Eight halves as f32. The intrinsics for halves are not stable.
///
/// # Safety
/// Eight halves can be read at `p`.
#[inline(always)]
pub unsafe fn widen_halves(p: *const u16) -> [float32x4_t; 2] {
    let (low, high);
    // SAFETY: the caller's promise; the rest only computes.
    unsafe {
        std::arch::asm!(
            "fcvtl {low:v}.4s, {halves:v}.4h",
            "fcvtl2 {high:v}.4s, {halves:v}.8h",
            halves = in(vreg) vld1q_u16(p),
            low = out(vreg) low,
            high = lateout(vreg) high,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    [low, high]
}

/// Both registers the same way.
macro_rules! both {
    ($i:ident => $value:expr) => {{
        // SAFETY: every processor of this architecture has NEON.
        let half = |$i: usize| unsafe { $value };
        Neon([half(0), half(1)])
    }};
}

impl Floats for Neon {
    const WIDTH: usize = 8;

    #[inline(always)]
    fn splat(value: f32) -> Neon {
        both!(_i => vdupq_n_f32(value))
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Neon {
        both!(i => vld1q_f32(p.add(4 * i)))
    }

    #[inline(always)]
    unsafe fn load_halves(p: *const u16) -> Neon {
        // SAFETY: the caller's promise.
        Neon(unsafe { widen_halves(p) })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            vst1q_f32(p, self.0[0]);
            vst1q_f32(p.add(4), self.0[1]);
        }
    }

    #[inline(always)]
    fn add(self, other: Neon) -> Neon {
        both!(i => vaddq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn sub(self, other: Neon) -> Neon {
        both!(i => vsubq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn mul(self, other: Neon) -> Neon {
        both!(i => vmulq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn div(self, other: Neon) -> Neon {
        both!(i => vdivq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn mul_add(self, b: Neon, c: Neon) -> Neon {
        both!(i => vfmaq_f32(c.0[i], self.0[i], b.0[i]))
    }

    #[inline(always)]
    fn larger(self, other: Neon) -> Neon {
        // The instruction for a maximum would give NaN.
        both!(i => vbslq_f32(vcgtq_f32(self.0[i], other.0[i]), self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn smaller(self, other: Neon) -> Neon {
        both!(i => vbslq_f32(vcltq_f32(self.0[i], other.0[i]), self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn round(self) -> Neon {
        both!(i => vrndnq_f32(self.0[i]))
    }

    #[inline(always)]
    fn times_power_of_two(self, n: Neon) -> Neon {
        both!(i => {
            let exponent = vaddq_s32(vcvtq_s32_f32(n.0[i]), vdupq_n_s32(127));
            vmulq_f32(self.0[i], vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent)))
        })
    }

    #[inline(always)]
    fn zero_where_below(self, x: Neon, limit: f32) -> Neon {
        both!(i => {
            let below = vcltq_f32(x.0[i], vdupq_n_f32(limit));
            vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(self.0[i]), below))
        })
    }
}

impl Lanes for Neon {
    type Wide = Neon;
    /// 32 of half the width.
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn largest_magnitude(values: [Neon; 4]) -> u32 {
        // SAFETY: every processor of this architecture has NEON.
        unsafe {
            // Bits of magnitudes are ordered as integers are, with NaN last.
            let mut largest = vdupq_n_u32(0);
            for value in values {
                for half in value.0 {
                    let bits = vreinterpretq_u32_f32(vabsq_f32(half));
                    largest = vmaxq_u32(largest, bits);
                }
            }
            vmaxvq_u32(largest)
        }
    }

    #[inline(always)]
    unsafe fn store_integers(values: [Neon; 4], p: *mut i16) -> [i32; 2] {
        // SAFETY: every processor of this architecture has NEON; the caller's promise.
        unsafe {
            let mut sums = [vdupq_n_s32(0); 2];
            for (i, value) in values.into_iter().enumerate() {
                let (a, b) = (vcvtq_s32_f32(value.0[0]), vcvtq_s32_f32(value.0[1]));
                sums[i / 2] = vaddq_s32(sums[i / 2], vaddq_s32(a, b));
                let integers = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
                // The high byte is rounded to the nearest, so the low one is the signed rest.
                let (high, low) = (vrshrn_n_s16::<8>(integers), vmovn_s16(integers));
                vst1q_s8(p.cast::<i8>().add(16 * i), vcombine_s8(high, low));
            }
            sums.map(|sum| vaddvq_s32(sum))
        }
    }

    #[inline(always)]
    fn prefetch(p: *const u8) {
        // SAFETY: a prefetch does not fault.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{p}]",
                p = in(reg) p,
                options(readonly, nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // The same tree as the array's.
        // SAFETY: every processor of this architecture has NEON.
        unsafe {
            let four = vaddq_f32(self.0[0], self.0[1]);
            vaddv_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        // NaN loses against -infinity first, then no lane is NaN and the order is free.
        let lanes = self.larger(Neon::splat(f32::NEG_INFINITY)).0;
        // SAFETY: every processor of this architecture has NEON.
        unsafe { vmaxvq_f32(vmaxq_f32(lanes[0], lanes[1])) }
    }
}
