//! Tiles of AVX-512: registers hold the products of one block, of two panels where there are two; sums are in memory.
//!
//! Twelve rows by two panels are 24 chains of products, and a pair of activations is loaded once for both panels. A processor that
//! starts two products a cycle waits for loads and for the products before with fewer: of its rate with scales and offsets, a Zen 5
//! does 98 % so, and 88 % with eight rows by one panel (a copy in C, everything in the first-level cache).

use super::{Ahead, GROUP, Inputs, STEPS, Step, WidePanel};
use crate::kernels::activations::QuantizedBlock;
use crate::kernels::linear::x86::registers::{Avx512, Panel};
use crate::kernels::linear::x86::vnni;
use crate::pack::PANEL;
use std::arch::x86_64::*;
use std::ops::Range;

/// `Tile::add` of AVX-512.
///
/// # Safety
/// As for `Tile::add`.
#[inline(always)]
pub unsafe fn add<
    const OFFSETS: usize,
    const SCALES_GROUPS: bool,
    const M: usize,
    const N: usize,
>(
    room: &WidePanel,
    inputs: Inputs<'_, M>,
    blocks: Range<usize>,
    sums: *mut f32,
    ahead: Option<Ahead<N>>,
) {
    type T = Avx512;
    // SAFETY: the caller's promise.
    unsafe {
        let products = room.products.base().cast::<f32>();
        for b in 0..blocks.len() {
            if let Some(ahead) = ahead {
                ahead.ask(b);
            }
            let x = inputs.blocks(blocks.start + b);
            let mut steps = [std::ptr::null(); N];
            for n in 0..N {
                steps[n] = (&raw const (*room.block::<T>(n, b)).steps).cast();
            }
            let dots = pair_dots::<M, N, STEPS>(steps, x);
            let is_end = (b + 1).is_multiple_of(GROUP);
            for n in 0..N {
                let w = &*room.block::<T>(n, b);
                let scale = T::load(w.scales.as_ptr());
                let offset = T::load(w.offsets.as_ptr());
                for m in 0..M {
                    let at = (m * N + n) * PANEL;
                    let (sum, products) = (sums.add(at), products.add(at));
                    let dots = T::floats(dots[m][n]);
                    let x = &*x[m];
                    if SCALES_GROUPS {
                        let all = T::mul_add_one(dots, x.scale, T::load(products));
                        T::store(if is_end { T::zeros() } else { all }, products);
                        if is_end {
                            T::store(T::mul_add(all, scale, T::load(sum)), sum);
                        }
                        continue;
                    }
                    let mut total = T::mul_add(dots, T::times(scale, x.scale), T::load(sum));
                    if OFFSETS == 1 {
                        total = T::mul_add_one(offset, x.sum, total);
                    }
                    T::store(total, sum);
                }
            }
            if OFFSETS == 16 && is_end {
                let x = inputs.sums((blocks.start + b) / GROUP);
                let mut steps = [std::ptr::null(); N];
                for n in 0..N {
                    steps[n] = (&raw const (*room.offsets::<T>(n, b / GROUP)).steps).cast();
                }
                let dots = pair_dots::<M, N, { super::OFFSET_STEPS }>(steps, x);
                for n in 0..N {
                    let w = &*room.offsets::<T>(n, b / GROUP);
                    let units = T::load(w.units.as_ptr());
                    for m in 0..M {
                        let sum = sums.add((m * N + n) * PANEL);
                        let units = T::times(units, (*x[m]).scale);
                        let total = T::mul_add(T::floats(dots[m][n]), units, T::load(sum));
                        T::store(total, sum);
                    }
                }
            }
        }
    }
}

/// The sums of the products of some steps' weights with a block of each row.
///
/// # Safety
/// The blocks exist, and as many steps at multiples of 64; the processor has AVX-512.
#[inline(always)]
unsafe fn pair_dots<const M: usize, const N: usize, const COUNT: usize>(
    steps: [*const Step; N],
    x: [*const QuantizedBlock; M],
) -> [[__m512i; N]; M] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots = [[_mm512_setzero_si512(); N]; M];
        for_each_step!(STEP, {
            if STEP < COUNT {
                let mut w = [_mm512_setzero_si512(); N];
                for n in 0..N {
                    w[n] = _mm512_load_si512(steps[n].add(STEP).cast());
                }
                for m in 0..M {
                    if N == 2 {
                        let both = [dots[m][0], dots[m][N - 1]];
                        let both =
                            add_products_of_two::<{ 4 * STEP }>(both, [w[0], w[N - 1]], x[m]);
                        (dots[m][0], dots[m][N - 1]) = (both[0], both[1]);
                    } else {
                        dots[m][0] = add_products_at::<{ 4 * STEP }>(dots[m][0], w[0], x[m]);
                    }
                }
            }
        });
        dots
    }
}

vnni! {
    /// 16 pairs of weights.
    add_products_at: "vpdpwssd", "1to16", zmm_reg, __m512i, QuantizedBlock
}

/// The same for two panels, and one load of the row's pair.
///
/// # Safety
/// As for `add_products_at`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni")]
unsafe fn add_products_of_two<const OFFSET: usize>(
    sums: [__m512i; 2],
    w: [__m512i; 2],
    x: *const QuantizedBlock,
) -> [__m512i; 2] {
    let [mut first, mut last] = sums;
    // Named, since the compiler takes a register without a value for one of another class.
    let _pair: __m512i;
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!(
            "vpbroadcastd {pair}, dword ptr [{x} + {offset}]",
            "vpdpwssd {first}, {w0}, {pair}",
            "vpdpwssd {last}, {w1}, {pair}",
            first = inout(zmm_reg) first,
            last = inout(zmm_reg) last,
            w0 = in(zmm_reg) w[0],
            w1 = in(zmm_reg) w[1],
            pair = out(zmm_reg) _pair,
            x = in(reg) x,
            offset = const OFFSET,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    [first, last]
}
