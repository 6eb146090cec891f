//! Owns eight f32 in a register of AVX2.

#![allow(
    clippy::needless_range_loop,
    reason = "iterator adapters are compiled without the kernels' instructions and may stay calls"
)]

use super::avx512::{Sixteen, add_wide};
use super::{Floats, Lanes, Steps};
use std::arch::x86_64::*;

/// A register of AVX2, where there are `N` of them.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct X86<const N: usize>(pub(super) __m256);

pub type Avx2 = X86<16>;
/// The same instructions: AVX-512 has twice as many registers. Where all the time goes, they are twice as wide: some processors
/// have two units for those, others gain nothing and lose nothing.
pub type Avx512 = X86<32>;

/// Joins the lanes of each of eight registers, in the tree that halving a register gives: lanes that are far apart first, and
/// every register in which half the lanes are done shares one with another.
macro_rules! across {
    ($all:ident, $join:ident) => {{
        // SAFETY: chosen where the processor has AVX2.
        unsafe {
            let mut four = [_mm256_setzero_ps(); 4];
            for i in 0..4 {
                let (x, y) = ($all[i].0, $all[i + 4].0);
                let low = _mm256_permute2f128_ps::<0x20>(x, y);
                four[i] = $join(low, _mm256_permute2f128_ps::<0x31>(x, y));
            }
            let mut two = [_mm256_setzero_ps(); 2];
            for i in 0..2 {
                let x = _mm256_castps_pd(four[2 * i]);
                let y = _mm256_castps_pd(four[2 * i + 1]);
                let low = _mm256_castpd_ps(_mm256_shuffle_pd::<0b0000>(x, y));
                two[i] = $join(low, _mm256_castpd_ps(_mm256_shuffle_pd::<0b1111>(x, y)));
            }
            let [x, y] = two;
            let even = _mm256_shuffle_ps::<0b10_00_10_00>(x, y);
            X86($join(even, _mm256_shuffle_ps::<0b11_01_11_01>(x, y)))
        }
    }};
}

/// The widest registers where there are so many.
pub trait Widest {
    type Floats: Floats;
}

impl Widest for Avx2 {
    type Floats = Avx2;
}

impl Widest for Avx512 {
    type Floats = Sixteen;
}

// SAFETY: for every block below: chosen where the processor has AVX2, FMA and F16C, see `Lanes`.
impl<const N: usize> Floats for X86<N> {
    const WIDTH: usize = 8;

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
    fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.0), _mm256_set1_epi32(127));
            let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent));
            X86(_mm256_mul_ps(self.0, power))
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
}

impl<const N: usize> Lanes for X86<N>
where
    X86<N>: Widest,
{
    type Wide = <X86<N> as Widest>::Floats;
    const REGISTERS: usize = N;
    const ADDS_THREE_ROWS: bool = N == 16;
    const IS_WIDE: bool = N == 32;

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
    fn sum_of_each(all: [Self; 8]) -> Self {
        across!(all, _mm256_add_ps)
    }

    #[inline(always)]
    fn largest_of_each(all: [Self; 8]) -> Self {
        across!(all, _mm256_max_ps)
    }

    #[inline(always)]
    fn prefetch(p: *const u8) {
        // SAFETY: as above; a prefetch does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }

    #[inline(always)]
    unsafe fn add_three_rows(sums: *mut [Self; 4], steps: Steps) {
        // SAFETY: as above, and the caller's promise.
        unsafe { add_three_rows(sums.cast(), steps) }
    }

    #[inline(always)]
    unsafe fn add_wide<const R: usize, const HALVES: bool, const ASKS: bool>(
        sums: *mut f32,
        row: usize,
        start: Option<[f32; R]>,
        steps: Steps,
    ) {
        assert!(Self::IS_WIDE);
        // SAFETY: it is AVX-512's, and the caller's promise.
        unsafe { add_wide::<R, HALVES, ASKS>(sums, row, start, steps) }
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

/// Twelve sums, three factors and what they multiply are all 16 registers, and the compiler would have one more.
///
/// # Safety
/// As for [`Lanes::add_three_rows`]; the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_three_rows(sums: *mut [[__m256; 4]; 3], steps: Steps) {
    if steps.count == 0 {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let [mut a, mut b, mut c] = *sums;
        std::arch::asm!(
            "2:",
            "vbroadcastss {x}, dword ptr [{factors}]",
            "vbroadcastss {y}, dword ptr [{factors} + {row}]",
            "vbroadcastss {z}, dword ptr [{factors} + 2 * {row}]",
            "prefetcht1 byte ptr [{elements} + {ahead}]",
            "vcvtph2ps {e}, xmmword ptr [{elements}]",
            "vfmadd231ps {a0}, {e}, {x}",
            "vfmadd231ps {b0}, {e}, {y}",
            "vfmadd231ps {c0}, {e}, {z}",
            "vcvtph2ps {e}, xmmword ptr [{elements} + 16]",
            "vfmadd231ps {a1}, {e}, {x}",
            "vfmadd231ps {b1}, {e}, {y}",
            "vfmadd231ps {c1}, {e}, {z}",
            "vcvtph2ps {e}, xmmword ptr [{elements} + 32]",
            "vfmadd231ps {a2}, {e}, {x}",
            "vfmadd231ps {b2}, {e}, {y}",
            "vfmadd231ps {c2}, {e}, {z}",
            "vcvtph2ps {e}, xmmword ptr [{elements} + 48]",
            "vfmadd231ps {a3}, {e}, {x}",
            "vfmadd231ps {b3}, {e}, {y}",
            "vfmadd231ps {c3}, {e}, {z}",
            "add {factors}, 4",
            "add {elements}, {step}",
            "dec {count}",
            "jnz 2b",
            a0 = inout(ymm_reg) a[0], a1 = inout(ymm_reg) a[1], a2 = inout(ymm_reg) a[2], a3 = inout(ymm_reg) a[3],
            b0 = inout(ymm_reg) b[0], b1 = inout(ymm_reg) b[1], b2 = inout(ymm_reg) b[2], b3 = inout(ymm_reg) b[3],
            c0 = inout(ymm_reg) c[0], c1 = inout(ymm_reg) c[1], c2 = inout(ymm_reg) c[2], c3 = inout(ymm_reg) c[3],
            x = out(ymm_reg) _, y = out(ymm_reg) _, z = out(ymm_reg) _, e = out(ymm_reg) _,
            factors = inout(reg) steps.factors => _,
            row = in(reg) steps.row * 4,
            elements = inout(reg) steps.elements => _,
            step = in(reg) steps.step,
            ahead = in(reg) (steps.next as usize).wrapping_sub(steps.elements as usize),
            count = inout(reg) steps.count => _,
            options(readonly, nostack),
        );
        *sums = [a, b, c];
    }
}
