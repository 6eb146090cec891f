//! Tiles of AVX-512 that multiply sums: registers hold the products of one block and the sums of all, of two panels where there are
//! two.
//!
//! **Rows by panels.** Six rows by two panels are 12 chains of products and as many sums, four registers of weights and four that
//! are free: all 32. A pair of activations is loaded once for both panels.
//!
//! **Products of sums** (Winograd, 1968). Two steps are `a w + a' w'`, for the activations `a` and `a'` and the weights `w` and `w'` of
//! one place each. They are also `(a + w') (a' + w) - a a' - w w'`: one product for two, since the products of a row's own integers are
//! computed once when it is quantized, and those of a panel once when it is widened. Nothing is rounded: a sum of 15 bits and 13 has
//! 16, and 32 bits that overflow on the way to a result that does not are right in the end. It takes two additions, so it pays where
//! additions start beside products: see [`crate::isa::adds_beside_products`]. Five pairs of steps of a block's eight are computed so
//! and three as they are, which is about where products and all instructions together take equally long.

use super::column::{Column, times};
use super::{Ahead, Avx512OfSums, GROUP, Inputs, OFFSET_STEPS, STEPS, Step, WideBlock, WidePanel};
use crate::isa::ProductLoop;
use crate::kernels::activations::{QuantizedBlock, is_of_sums};
use crate::kernels::linear::x86::registers::{Avx512, Panel};
use crate::pack::PANEL;
use std::arch::x86_64::*;
use std::mem::offset_of;
use std::ops::Range;

/// `Tile::add` of AVX-512 with products of sums.
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
    inputs: Inputs,
    blocks: Range<usize>,
    sums: *mut f32,
    ahead: Option<Ahead<N>>,
) {
    type Lanes = Avx512;
    // SAFETY: the caller's promise.
    unsafe {
        let mut x = Column::new(inputs.rows, blocks.start);
        // Of the chunk, or of a group so far, without its scales.
        let mut totals = [[Lanes::zeros(); N]; M];
        if !SCALES_GROUPS {
            for_each_row!(ROW of M, {
                for n in 0..N {
                    totals[ROW][n] = Lanes::load(sums.add((ROW * N + n) * PANEL));
                }
            });
        }
        for b in 0..blocks.len() {
            if let Some(ahead) = ahead {
                ahead.ask(b);
            }
            let mut w = [std::ptr::null(); N];
            let mut steps = [std::ptr::null(); N];
            for n in 0..N {
                w[n] = room.block::<Avx512OfSums>(n, b).cast_const();
                steps[n] = (&raw const (*w[n]).steps).cast();
            }
            let mut dots = [[_mm512_setzero_si512(); N]; M];
            let mut less = [_mm512_setzero_si512(); N];
            for n in 0..N {
                less[n] = _mm512_load_si512((&raw const (*w[n]).less_own).cast());
            }
            for_each_row!(ROW of M, {
                const OWN: usize = offset_of!(QuantizedBlock, own_products);
                let own = _mm512_castps_si512(x.of_all::<ROW, OWN>());
                for n in 0..N {
                    dots[ROW][n] = _mm512_sub_epi32(less[n], own);
                }
            });
            let dots = pair_dots::<M, N, STEPS>(dots, steps, x, true);
            let (mut scales, mut offsets) = ([Lanes::zeros(); N], [Lanes::zeros(); N]);
            for n in 0..N {
                scales[n] = Lanes::load((*w[n]).scales.as_ptr());
                offsets[n] = Lanes::load((*w[n]).offsets.as_ptr());
            }
            for_each_row!(ROW of M, {
                let scale = x.of_all::<ROW, { offset_of!(QuantizedBlock, scale) }>();
                let sum_of_x = x.of_all::<ROW, { offset_of!(QuantizedBlock, sum) }>();
                for n in 0..N {
                    let dots = Lanes::floats(dots[ROW][n]);
                    let scale = match SCALES_GROUPS {
                        true => scale,
                        false => _mm512_mul_ps(scales[n], scale),
                    };
                    add_product(&mut totals[ROW][n], dots, scale);
                    if OFFSETS == 1 {
                        add_product(&mut totals[ROW][n], offsets[n], sum_of_x);
                    }
                }
            });
            if SCALES_GROUPS && (b + 1).is_multiple_of(GROUP) {
                for_each_row!(ROW of M, {
                    for n in 0..N {
                        let sum = sums.add((ROW * N + n) * PANEL);
                        let total = Lanes::mul_add(totals[ROW][n], scales[n], Lanes::load(sum));
                        Lanes::store(total, sum);
                        totals[ROW][n] = Lanes::zeros();
                    }
                });
                if OFFSETS == 16 {
                    let x = Column::new(inputs.sums_of_groups, (blocks.start + b) / GROUP);
                    let mut steps = [std::ptr::null(); N];
                    let mut units = [Lanes::zeros(); N];
                    for n in 0..N {
                        let w = room.offsets::<Avx512OfSums>(n, b / GROUP).cast_const();
                        steps[n] = (&raw const (*w).steps).cast();
                        units[n] = Lanes::load((*w).units.as_ptr());
                    }
                    let dots = [[_mm512_setzero_si512(); N]; M];
                    let dots = pair_dots::<M, N, OFFSET_STEPS>(dots, steps, x, false);
                    for_each_row!(ROW of M, {
                        let scale = x.of_all::<ROW, { offset_of!(QuantizedBlock, scale) }>();
                        for n in 0..N {
                            let sum = sums.add((ROW * N + n) * PANEL);
                            let units = _mm512_mul_ps(units[n], scale);
                            let dots = Lanes::floats(dots[ROW][n]);
                            Lanes::store(Lanes::mul_add(dots, units, Lanes::load(sum)), sum);
                        }
                    });
                }
            }
            x.advance();
        }
        if !SCALES_GROUPS {
            for_each_row!(ROW of M, {
                for n in 0..N {
                    Lanes::store(totals[ROW][n], sums.add((ROW * N + n) * PANEL));
                }
            });
        }
    }
}

/// Adds the products of some steps' weights with a block of each row.
///
/// # Safety
/// The blocks exist, and as many steps at multiples of 64; the processor has AVX-512.
#[inline(always)]
unsafe fn pair_dots<const M: usize, const N: usize, const COUNT: usize>(
    mut dots: [[__m512i; N]; M],
    steps: [*const Step; N],
    x: Column,
    of_sums: bool,
) -> [[__m512i; N]; M] {
    // SAFETY: the caller's promise.
    unsafe {
        for_each_eighth!(PAIR, {
            if 2 * PAIR < COUNT {
                let mut w = [[_mm512_setzero_si512(); 2]; N];
                for n in 0..N {
                    for i in 0..2 {
                        w[n][i] = _mm512_load_si512(steps[n].add(2 * PAIR + i).cast());
                    }
                }
                for_each_row!(ROW of M, {
                    let dots = &mut dots[ROW];
                    let (one, two) = ([dots[0]], [dots[0], dots[N - 1]]);
                    let (w_one, w_two) = ([w[0]], [w[0], w[N - 1]]);
                    match (N, of_sums && is_of_sums(PAIR)) {
                        (2, false) => [dots[0], dots[N - 1]] = add_two::<PAIR, ROW>(two, w_two, x),
                        (2, true) => {
                            [dots[0], dots[N - 1]] = add_two_of_sums::<PAIR, ROW>(two, w_two, x)
                        }
                        (_, false) => [dots[0]] = add_one::<PAIR, ROW>(one, w_one, x),
                        (_, true) => [dots[0]] = add_one_of_sums::<PAIR, ROW>(one, w_one, x),
                    }
                });
            }
        });
        dots
    }
}

/// A function that adds to the sums of some panels the products of two steps' weights with a row's. The row's pairs are loaded once
/// for all panels, into `a` and `b`; `s` and `t` are free. With intrinsics the compiler takes products and sums apart, and reads
/// one value for all lanes in instructions that compute: beside additions Zen 5 then waits (the tile in assembly: 362 instead of 500
/// Gop/s).
macro_rules! two_steps {
    ($name:ident: $panels:literal panels, $($sum:ident + $w0:ident $w1:ident of $number:literal),*; $($line:literal)*) => {
        /// # Safety
        /// The processor has AVX-512 BW, VL and VNNI, and the row exists.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
        unsafe fn $name<const PAIR: usize, const ROW: usize>(
            sums: [__m512i; $panels],
            w: [[__m512i; 2]; $panels],
            x: Column,
        ) -> [__m512i; $panels] {
            $(let mut $sum = sums[$number];)*
            // Named, since the compiler takes a register without a value for one of another class.
            let (_a, _b, _s, _t): (__m512i, __m512i, __m512i, __m512i);
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    "vpbroadcastd {a}, dword ptr [{x} + {distance} * {times} + {offset}]",
                    "vpbroadcastd {b}, dword ptr [{x} + {distance} * {times} + {offset} + 4]",
                    $($line,)*
                    "/* {s} {t} */",
                    $($sum = inout(zmm_reg) $sum, $w0 = in(zmm_reg) w[$number][0], $w1 = in(zmm_reg) w[$number][1],)*
                    x = in(reg) x.before::<ROW>(),
                    distance = in(reg) x.distance::<ROW>(),
                    times = const times(ROW),
                    offset = const 8 * PAIR,
                    a = out(zmm_reg) _a,
                    b = out(zmm_reg) _b,
                    s = out(zmm_reg) _s,
                    t = out(zmm_reg) _t,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [$($sum),*]
        }
    };
}

two_steps! {
    add_one: 1 panels, sum + w0 w1 of 0;
    "vpdpwssd {sum}, {w0}, {a}"
    "vpdpwssd {sum}, {w1}, {b}"
}

two_steps! {
    add_two: 2 panels, first + v0 v1 of 0, last + w0 w1 of 1;
    "vpdpwssd {first}, {v0}, {a}"
    "vpdpwssd {last}, {w0}, {a}"
    "vpdpwssd {first}, {v1}, {b}"
    "vpdpwssd {last}, {w1}, {b}"
}

two_steps! {
    add_one_of_sums: 1 panels, sum + w0 w1 of 0;
    "vpaddw {a}, {a}, {w1}"
    "vpaddw {b}, {b}, {w0}"
    "vpdpwssd {sum}, {a}, {b}"
}

two_steps! {
    add_two_of_sums: 2 panels, first + v0 v1 of 0, last + w0 w1 of 1;
    "vpaddw {s}, {a}, {v1}"
    "vpaddw {t}, {b}, {v0}"
    "vpaddw {a}, {a}, {w1}"
    "vpaddw {b}, {b}, {w0}"
    "vpdpwssd {first}, {s}, {t}"
    "vpdpwssd {last}, {a}, {b}"
}

/// Adds `a * b`, rounded once. With an intrinsic the compiler puts the total elsewhere, and moves all totals back at the end of a block.
///
/// # Safety
/// The processor has AVX-512.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_product(total: &mut __m512, a: __m512, b: __m512) {
    // SAFETY: it only computes.
    unsafe {
        std::arch::asm!(
            "vfmadd231ps {total}, {a}, {b}",
            total = inout(zmm_reg) *total,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
}

/// Writes what a widened block's own products are too much.
///
/// # Safety
/// Its steps are there; the processor has AVX-512 and VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub unsafe fn write_less_own(block: *mut WideBlock) {
    // SAFETY: the caller's promise.
    unsafe {
        let steps = (&raw const (*block).steps).cast::<Step>();
        let mut own = _mm512_setzero_si512();
        for pair in 0..STEPS / 2 {
            if is_of_sums(pair) {
                let [w, other] = [0, 1].map(|i| _mm512_load_si512(steps.add(2 * pair + i).cast()));
                own = _mm512_dpwssd_epi32(own, w, other);
            }
        }
        let less = _mm512_sub_epi32(_mm512_setzero_si512(), own);
        _mm512_store_si512((&raw mut (*block).less_own).cast(), less);
    }
}

/// Chains of products that are enough for any processor.
const CHAINS: usize = 12;

/// A block of rows and a panel for each chain, as `pair_dots` computes them. `Isa::product_loop` gives it only to those who have
/// AVX-512.
pub const SUM_LOOP: ProductLoop = ProductLoop {
    run: |times| {
        // SAFETY: whoever got this function has it.
        unsafe { multiply_sums(times) }
    },
    operations_per_step: 2 * CHAINS * STEPS * 2 * PANEL,
};

/// # Safety
/// The processor has AVX-512 BW, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn multiply_sums(times: usize) {
    // Numbers as kernels have them: with zeros some processors run at a higher clock.
    let integers: [[i16; 32]; 4] = std::array::from_fn(|i| {
        std::array::from_fn(|j| (i * 5003 + j * 7919) as i16 >> if i < 2 { 1 } else { 8 })
    });
    // SAFETY: 64 bytes each.
    let [a, b, w0, w1] =
        [0, 1, 2, 3].map(|i: usize| unsafe { _mm512_loadu_si512(integers[i].as_ptr().cast()) });
    let mut sums = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..times {
        for pair in 0..STEPS / 2 {
            for sum in &mut sums {
                let (_s, _t): (__m512i, __m512i);
                // SAFETY: they only compute.
                unsafe {
                    if is_of_sums(pair) {
                        std::arch::asm!(
                            "vpaddw {s}, {a}, {w1}",
                            "vpaddw {t}, {b}, {w0}",
                            "vpdpwssd {sum}, {s}, {t}",
                            sum = inout(zmm_reg) *sum,
                            a = in(zmm_reg) a,
                            b = in(zmm_reg) b,
                            w0 = in(zmm_reg) w0,
                            w1 = in(zmm_reg) w1,
                            s = out(zmm_reg) _s,
                            t = out(zmm_reg) _t,
                            options(nomem, nostack, preserves_flags),
                        );
                    } else {
                        std::arch::asm!(
                            "vpdpwssd {sum}, {a}, {w0}",
                            "vpdpwssd {sum}, {b}, {w1}",
                            sum = inout(zmm_reg) *sum,
                            a = in(zmm_reg) a,
                            b = in(zmm_reg) b,
                            w0 = in(zmm_reg) w0,
                            w1 = in(zmm_reg) w1,
                            options(nomem, nostack, preserves_flags),
                        );
                    }
                }
            }
        }
    }
}
