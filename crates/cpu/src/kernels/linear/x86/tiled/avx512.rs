//! Tiles of AVX-512 where additions take the place of products: registers hold the products of one block, and sums are in memory.
//!
//! Twelve rows by two panels are 24 chains of products; weights and a row's pair of activations take three registers more. A tile of
//! six rows that keeps its sums in registers, as in [`super::avx512_of_sums`], waits longer at its end and its start, and loads
//! weights twice as often: 228 instead of 231 Gop/s alone on a core of a Cascade Lake, in place 186 and 207.

use super::column::{Column, times};
use super::{Ahead, Avx512, GROUP, Inputs, OFFSET_STEPS, STEPS, Step, WidePanel};
use crate::kernels::activations::QuantizedBlock;
use crate::kernels::linear::x86::registers::Panel;
use crate::pack::PANEL;
use std::arch::x86_64::*;
use std::mem::offset_of;
use std::ops::Range;

const SCALE: usize = offset_of!(QuantizedBlock, scale);
const SUM: usize = offset_of!(QuantizedBlock, sum);

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
    inputs: Inputs,
    blocks: Range<usize>,
    sums: *mut f32,
    ahead: Option<Ahead<N>>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let products = room.products.base().cast::<f32>();
        let mut x = Column::new(inputs.rows, blocks.start);
        for b in 0..blocks.len() {
            if let Some(ahead) = ahead {
                ahead.ask(b);
            }
            let mut w = [std::ptr::null(); N];
            let mut steps = [std::ptr::null(); N];
            let (mut scales, mut offsets) = ([Avx512::zeros(); N], [Avx512::zeros(); N]);
            for n in 0..N {
                w[n] = room.block::<Avx512>(n, b).cast_const();
                steps[n] = (&raw const (*w[n]).steps).cast();
            }
            let dots = step_dots::<M, N, STEPS>(steps, x);
            for n in 0..N {
                scales[n] = Avx512::load((*w[n]).scales.as_ptr());
                offsets[n] = Avx512::load((*w[n]).offsets.as_ptr());
            }
            for_each_row!(ROW of M, {
                let scale = x.of_all::<ROW, SCALE>();
                let sum_of_x = x.of_all::<ROW, SUM>();
                for n in 0..N {
                    let dots = Avx512::floats(dots[ROW][n]);
                    let at = (ROW * N + n) * PANEL;
                    if SCALES_GROUPS {
                        add_to(products.add(at), dots, scale);
                        continue;
                    }
                    let total = sums.add(at);
                    let mut sum = Avx512::load(total);
                    sum = Avx512::mul_add(dots, _mm512_mul_ps(scales[n], scale), sum);
                    if OFFSETS == 1 {
                        sum = Avx512::mul_add(offsets[n], sum_of_x, sum);
                    }
                    Avx512::store(sum, total);
                }
            });
            if SCALES_GROUPS && (b + 1).is_multiple_of(GROUP) {
                for m in 0..M {
                    for n in 0..N {
                        let at = (m * N + n) * PANEL;
                        add_to(sums.add(at), Avx512::load(products.add(at)), scales[n]);
                        Avx512::store(Avx512::zeros(), products.add(at));
                    }
                }
                if OFFSETS == 16 {
                    let x = Column::new(inputs.sums_of_groups, (blocks.start + b) / GROUP);
                    let mut units = [Avx512::zeros(); N];
                    for n in 0..N {
                        let w = room.offsets::<Avx512>(n, b / GROUP).cast_const();
                        steps[n] = (&raw const (*w).steps).cast();
                        units[n] = Avx512::load((*w).units.as_ptr());
                    }
                    let dots = step_dots::<M, N, OFFSET_STEPS>(steps, x);
                    for_each_row!(ROW of M, {
                        let scale = x.of_all::<ROW, SCALE>();
                        for n in 0..N {
                            let units = _mm512_mul_ps(units[n], scale);
                            let dots = Avx512::floats(dots[ROW][n]);
                            add_to(sums.add((ROW * N + n) * PANEL), dots, units);
                        }
                    });
                }
            }
            x.advance();
        }
    }
}

/// Adds `a * b`, rounded once, to 16 values.
///
/// # Safety
/// They exist at a multiple of 64; the processor has AVX-512.
#[inline(always)]
unsafe fn add_to(total: *mut f32, a: __m512, b: __m512) {
    // SAFETY: the caller's promise.
    unsafe { Avx512::store(Avx512::mul_add(a, b, Avx512::load(total)), total) };
}

/// The sums of the products of some steps' weights with a block of each row.
///
/// # Safety
/// The blocks exist, and as many steps at multiples of 64; the processor has AVX-512.
#[inline(always)]
unsafe fn step_dots<const M: usize, const N: usize, const COUNT: usize>(
    steps: [*const Step; N],
    x: Column,
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
                for_each_row!(ROW of M, {
                    let dots = &mut dots[ROW];
                    match N {
                        2 => {
                            [dots[0], dots[N - 1]] = add_two::<STEP, ROW>(
                                [dots[0], dots[N - 1]],
                                [w[0], w[N - 1]],
                                x,
                            );
                        }
                        _ => [dots[0]] = add_one::<STEP, ROW>([dots[0]], [w[0]], x),
                    }
                });
            }
        });
        dots
    }
}

/// A function that adds to the sums of some panels the products of a step's weights with a row's. The row's pair is loaded once for
/// all panels. With intrinsics the compiler takes products and sums apart.
macro_rules! one_step {
    ($name:ident: $panels:literal panels, $($sum:ident + $w:ident of $number:literal),*; $($line:literal)*) => {
        /// # Safety
        /// The processor has AVX-512 and VNNI, and the row exists.
        #[inline]
        #[target_feature(enable = "avx512f,avx512vnni")]
        unsafe fn $name<const STEP: usize, const ROW: usize>(
            sums: [__m512i; $panels],
            w: [__m512i; $panels],
            x: Column,
        ) -> [__m512i; $panels] {
            $(let mut $sum = sums[$number];)*
            let _a: __m512i;
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    "vpbroadcastd {a}, dword ptr [{x} + {distance} * {times} + {offset}]",
                    $($line,)*
                    $($sum = inout(zmm_reg) $sum, $w = in(zmm_reg) w[$number],)*
                    x = in(reg) x.before::<ROW>(),
                    distance = in(reg) x.distance::<ROW>(),
                    times = const times(ROW),
                    offset = const 4 * STEP,
                    a = out(zmm_reg) _a,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [$($sum),*]
        }
    };
}

one_step! {
    add_one: 1 panels, sum + w of 0;
    "vpdpwssd {sum}, {w}, {a}"
}

one_step! {
    add_two: 2 panels, first + v of 0, last + w of 1;
    "vpdpwssd {first}, {v}, {a}"
    "vpdpwssd {last}, {w}, {a}"
}
