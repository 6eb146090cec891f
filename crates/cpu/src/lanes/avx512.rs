//! Owns sixteen f32 in a register of AVX-512, and sums in such registers.

#![allow(
    clippy::needless_range_loop,
    reason = "iterator adapters are compiled without the kernels' instructions and may stay calls"
)]

use super::x86::X86;
use super::{Avx512, Floats, Steps};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Sixteen(pub __m512);

/// Joins lanes that are less than four apart of each of four registers: lanes of registers take turns, then pairs of lanes, and at
/// every turn two registers become one.
macro_rules! across_four {
    ($rows:expr, $join:path) => {{
        let [a, b, c, d] = $rows;
        let ab = $join(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let cd = $join(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
        $join(
            _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
            _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)),
        )
    }};
}
pub(crate) use across_four;

/// Joins the fours of lanes of four such registers: what is joined of each of sixteen.
macro_rules! across_fours {
    ($fours:expr, $join:path) => {{
        macro_rules! two {
            ($a:expr, $b:expr) => {{
                let even = _mm512_shuffle_f32x4::<0b10_00_10_00>($a, $b);
                $join(even, _mm512_shuffle_f32x4::<0b11_01_11_01>($a, $b))
            }};
        }
        let [a, b, c, d] = $fours;
        let (ab, cd) = (two!(a, b), two!(c, d));
        two!(ab, cd)
    }};
}
pub(crate) use across_fours;

impl Sixteen {
    #[inline(always)]
    pub fn halves(self) -> [Avx512; 2] {
        // SAFETY: chosen where the processor has AVX-512.
        unsafe {
            let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self.0));
            [
                X86(_mm512_castps512_ps256(self.0)),
                X86(_mm256_castpd_ps(high)),
            ]
        }
    }
}

// SAFETY: for every block below: chosen where the processor has AVX-512, see `Floats`.
impl Floats for Sixteen {
    const WIDTH: usize = 16;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: as above, and the caller's promise.
        Sixteen(unsafe { _mm512_loadu_ps(p) })
    }

    #[inline(always)]
    unsafe fn load_halves(p: *const u16) -> Self {
        // SAFETY: as above, and the caller's promise.
        Sixteen(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: as above, and the caller's promise.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_div_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_roundscale_ps::<NEAREST>(self.0) })
    }

    #[inline(always)]
    fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: as above.
        Sixteen(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }

    #[inline(always)]
    fn zero_where_below(self, x: Self, limit: f32) -> Self {
        // SAFETY: as above.
        unsafe {
            let kept = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x.0, _mm512_set1_ps(limit));
            Sixteen(_mm512_maskz_mov_ps(kept, self.0))
        }
    }
}

/// # Safety
/// As for [`Lanes::add_wide`]; the processor has AVX-512.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f")]
pub unsafe fn add_wide<const R: usize, const HALVES: bool, const ASKS: bool>(
    sums: *mut f32,
    row: usize,
    start: Option<[f32; R]>,
    steps: Steps,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = [[_mm512_setzero_ps(); 2]; R];
        if let Some(start) = start {
            for r in 0..R {
                for c in 0..2 {
                    let before = _mm512_loadu_ps(sums.add(r * row + 16 * c));
                    all[r][c] = _mm512_mul_ps(before, _mm512_set1_ps(start[r]));
                }
            }
        }
        for i in 0..steps.count {
            let elements = steps.elements.add(i * steps.step);
            if ASKS {
                let next = steps.next.wrapping_add(i * steps.step).cast();
                match steps.asks_near {
                    true => _mm_prefetch::<_MM_HINT_T0>(next),
                    false => _mm_prefetch::<_MM_HINT_T1>(next),
                }
            }
            let mut element = [_mm512_setzero_ps(); 2];
            for c in 0..2 {
                element[c] = match HALVES {
                    true => _mm512_cvtph_ps(_mm256_loadu_si256(elements.add(32 * c).cast())),
                    false => _mm512_loadu_ps(elements.add(64 * c).cast()),
                };
            }
            for r in 0..R {
                let factor = _mm512_set1_ps(*steps.factors.add(r * steps.row + i));
                for c in 0..2 {
                    all[r][c] = _mm512_fmadd_ps(factor, element[c], all[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..2 {
                _mm512_storeu_ps(sums.add(r * row + 16 * c), all[r][c]);
            }
        }
    }
}
