//! Owns eight f32 side by side: what kernels that are written once for every instruction set compute with.
//!
//! Every operation is the IEEE one, lane by lane, so all implementations give the same bits.

#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "aarch64")]
pub use neon::{Neon, widen_halves};

use crate::kernels::order;

/// Eight f32.
///
/// Kernels use neither closures nor iterator adapters around them: those are compiled without the instructions and may
/// stay calls. The operations are safe to write but may only run where the processor has the instructions: `for_each_isa!` makes
/// the one place where an implementation is chosen, after the processor was asked.
pub trait Lanes: Copy {
    /// How many of them the processor has registers for.
    const REGISTERS: usize;

    fn splat(value: f32) -> Self;

    /// # Safety
    /// Eight values can be read at `p`.
    unsafe fn load(p: *const f32) -> Self;

    /// # Safety
    /// Eight halves can be read at `p`.
    unsafe fn load_halves(p: *const u16) -> Self;

    /// # Safety
    /// Eight values can be written at `p`.
    unsafe fn store(self, p: *mut f32);

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;

    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;

    /// `self` where it is larger, else `other`; so `other` where one of them is NaN.
    fn larger(self, other: Self) -> Self;

    /// `self` where it is smaller, else `other`; so `other` where one of them is NaN.
    fn smaller(self, other: Self) -> Self;

    /// To the nearest whole number, ties to even.
    fn round(self) -> Self;

    /// 2 to the power of each lane: whole numbers from -126 to 127.
    fn power_of_two(self) -> Self;

    /// 0 where `x` is below `limit`.
    fn zero_where_below(self, x: Self, limit: f32) -> Self;

    /// The bits of the largest magnitude of 32 values, where infinities and NaN are the largest.
    fn largest_magnitude(values: [Self; 4]) -> u32;

    /// Writes 32 whole numbers of 15 bits in the `order` of a block of activations, and gives the sums of both halves.
    ///
    /// # Safety
    /// There are 32 integers at `p`, and nobody else touches them.
    unsafe fn store_integers(values: [Self; 4], p: *mut i16) -> [i32; 2];

    /// Asks for the cache line at `p`, which may be anywhere, to be brought to the second-level cache: it has room for more
    /// requests under way than the first, and 14 cycles from there are nothing.
    #[inline(always)]
    fn prefetch(_p: *const u8) {}

    /// All lanes.
    #[inline(always)]
    fn to_array(self) -> [f32; 8] {
        let mut values = [0.0; 8];
        // SAFETY: room for eight.
        unsafe { self.store(values.as_mut_ptr()) };
        values
    }

    /// The sum of all lanes in the order that halving a register gives.
    #[inline(always)]
    fn sum(self) -> f32 {
        let s = self.to_array();
        ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    }

    /// The largest lane that is not NaN, or -infinity.
    #[inline(always)]
    fn largest(self) -> f32 {
        let mut largest = f32::NEG_INFINITY;
        for value in self.to_array() {
            largest = if value > largest { value } else { largest };
        }
        largest
    }
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub struct Plain([f32; 8]);

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Plain {
    let mut values = [0.0; 8];
    for (i, value) in values.iter_mut().enumerate() {
        *value = f(i);
    }
    Plain(values)
}

impl Lanes for Plain {
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn splat(value: f32) -> Plain {
        Plain([value; 8])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Plain {
        // SAFETY: the caller's promise.
        Plain(unsafe { p.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_halves(p: *const u16) -> Plain {
        // SAFETY: the caller's promise.
        each(|i| half::f16::from_bits(unsafe { p.add(i).read_unaligned() }).to_f32())
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    fn add(self, other: Plain) -> Plain {
        each(|i| self.0[i] + other.0[i])
    }

    #[inline(always)]
    fn sub(self, other: Plain) -> Plain {
        each(|i| self.0[i] - other.0[i])
    }

    #[inline(always)]
    fn mul(self, other: Plain) -> Plain {
        each(|i| self.0[i] * other.0[i])
    }

    #[inline(always)]
    fn div(self, other: Plain) -> Plain {
        each(|i| self.0[i] / other.0[i])
    }

    #[inline(always)]
    fn mul_add(self, b: Plain, c: Plain) -> Plain {
        each(|i| self.0[i].mul_add(b.0[i], c.0[i]))
    }

    #[inline(always)]
    fn larger(self, other: Plain) -> Plain {
        each(|i| match self.0[i] > other.0[i] {
            true => self.0[i],
            false => other.0[i],
        })
    }

    #[inline(always)]
    fn smaller(self, other: Plain) -> Plain {
        each(|i| match self.0[i] < other.0[i] {
            true => self.0[i],
            false => other.0[i],
        })
    }

    #[inline(always)]
    fn round(self) -> Plain {
        each(|i| self.0[i].round_ties_even())
    }

    #[inline(always)]
    fn power_of_two(self) -> Plain {
        // A NaN becomes 1, which is as good: what it is multiplied with is NaN too.
        each(|i| match self.0[i].is_nan() {
            true => 1.0,
            false => f32::from_bits(((self.0[i] as i32 + 127) << 23) as u32),
        })
    }

    #[inline(always)]
    fn zero_where_below(self, x: Plain, limit: f32) -> Plain {
        each(|i| if x.0[i] < limit { 0.0 } else { self.0[i] })
    }

    #[inline(always)]
    fn largest_magnitude(values: [Plain; 4]) -> u32 {
        let bits = values.iter().flat_map(|v| v.0).map(f32::to_bits);
        bits.fold(0, |largest, bits| largest.max(bits & 0x7fff_ffff))
    }

    #[inline(always)]
    unsafe fn store_integers(values: [Plain; 4], p: *mut i16) -> [i32; 2] {
        // SAFETY: the caller's promise.
        let integers = unsafe { &mut *p.cast::<[i16; 32]>() };
        let mut sums = [0; 2];
        for column in 0..32 {
            let integer = values[column / 8].0[column % 8] as i32;
            order::set(integers, column, integer as i16);
            sums[column / 16] += integer;
        }
        sums
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    /// A register of AVX2, where there are `N` of them.
    #[derive(Clone, Copy)]
    pub struct X86<const N: usize>(__m256);

    pub type Avx2 = X86<16>;
    /// The same instructions: AVX-512 has twice as many registers.
    pub type Avx512 = X86<32>;

    // SAFETY: for every block below: chosen where the processor has AVX2, FMA and F16C, see `Lanes`.
    impl<const N: usize> Lanes for X86<N> {
        const REGISTERS: usize = N;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_set1_ps(value) })
        }

        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            // SAFETY: as above, and the caller's promise.
            X86(unsafe { _mm256_loadu_ps(p) })
        }

        #[inline(always)]
        unsafe fn load_halves(p: *const u16) -> Self {
            // SAFETY: as above, and the caller's promise.
            X86(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) })
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            // SAFETY: as above, and the caller's promise.
            unsafe { _mm256_storeu_ps(p, self.0) }
        }

        #[inline(always)]
        fn sum(self) -> f32 {
            // The same tree as the array's.
            // SAFETY: as above.
            unsafe {
                let four = _mm_add_ps(
                    _mm256_castps256_ps128(self.0),
                    _mm256_extractf128_ps::<1>(self.0),
                );
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
            }
        }

        #[inline(always)]
        fn largest(self) -> f32 {
            // NaN loses against -infinity first, then no lane is NaN and the order is free.
            // SAFETY: as above.
            unsafe {
                let lanes = _mm256_max_ps(self.0, _mm256_set1_ps(f32::NEG_INFINITY));
                let four = _mm_max_ps(
                    _mm256_castps256_ps128(lanes),
                    _mm256_extractf128_ps::<1>(lanes),
                );
                let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
            }
        }

        #[inline(always)]
        fn prefetch(p: *const u8) {
            // SAFETY: as above; a prefetch does not fault.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_sub_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_mul_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn div(self, other: Self) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_div_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
        }

        #[inline(always)]
        fn larger(self, other: Self) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_max_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn smaller(self, other: Self) -> Self {
            // SAFETY: as above.
            X86(unsafe { _mm256_min_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn round(self) -> Self {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
            // SAFETY: as above.
            X86(unsafe { _mm256_round_ps::<NEAREST>(self.0) })
        }

        #[inline(always)]
        fn power_of_two(self) -> Self {
            // SAFETY: as above.
            unsafe {
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(self.0), _mm256_set1_epi32(127));
                X86(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
            }
        }

        #[inline(always)]
        fn zero_where_below(self, x: Self, limit: f32) -> Self {
            // SAFETY: as above.
            unsafe {
                let below = _mm256_cmp_ps::<_CMP_LT_OQ>(x.0, _mm256_set1_ps(limit));
                X86(_mm256_andnot_ps(below, self.0))
            }
        }

        #[inline(always)]
        fn largest_magnitude(values: [Self; 4]) -> u32 {
            // SAFETY: as above.
            unsafe {
                let size = _mm256_set1_epi32(0x7fff_ffff);
                let mut all = _mm256_setzero_si256();
                for value in values {
                    let bits = _mm256_and_si256(_mm256_castps_si256(value.0), size);
                    all = _mm256_max_epi32(all, bits);
                }
                let four = _mm_max_epi32(
                    _mm256_castsi256_si128(all),
                    _mm256_extracti128_si256::<1>(all),
                );
                let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
                let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
                _mm_cvtsi128_si32(one) as u32
            }
        }

        #[inline(always)]
        unsafe fn store_integers(values: [Self; 4], p: *mut i16) -> [i32; 2] {
            // SAFETY: as above, and the caller's promise.
            unsafe {
                let (a, b) = (
                    _mm256_cvtps_epi32(values[0].0),
                    _mm256_cvtps_epi32(values[1].0),
                );
                let (c, d) = (
                    _mm256_cvtps_epi32(values[2].0),
                    _mm256_cvtps_epi32(values[3].0),
                );
                for (i, (first, second)) in [(a, b), (c, d)].into_iter().enumerate() {
                    let packed = _mm256_packs_epi32(first, second);
                    let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
                    let low = _mm256_shufflelo_epi16::<0b11_01_10_00>(ordered);
                    let swapped = _mm256_shufflehi_epi16::<0b11_01_10_00>(low);
                    _mm256_storeu_si256(p.add(16 * i).cast(), swapped);
                }
                // The low pair of every four lanes has sums of the first half, the high pair of the last.
                let pairs = _mm256_hadd_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
                let four = _mm_add_epi32(
                    _mm256_castsi256_si128(pairs),
                    _mm256_extracti128_si256::<1>(pairs),
                );
                let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b10_11_00_01>(four));
                [_mm_extract_epi32::<0>(two), _mm_extract_epi32::<2>(two)]
            }
        }
    }
}
