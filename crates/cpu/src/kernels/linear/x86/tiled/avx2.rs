//! Tiles of AVX2, with AVX-VNNI or without: registers hold the products of one block, and sums are in memory.

use super::{Ahead, GROUP, Inputs, Step, WidePanel};
use crate::kernels::activations::QuantizedBlock;
use crate::kernels::linear::x86::registers::{Avx2, Panel};
use crate::kernels::linear::x86::{add_word_products, avx_vnni, word_products};
use crate::pack::PANEL;
use std::arch::x86_64::*;
use std::ops::Range;

/// `Tile::add` of AVX2; `FUSED` if the processor has AVX-VNNI.
///
/// # Safety
/// As for `Tile::add`.
#[inline(always)]
pub unsafe fn add<
    const FUSED: bool,
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
    const { assert!(N == 1) };
    // SAFETY: the caller's promise.
    unsafe {
        let products = room.products.base().cast::<f32>();
        let mut w = room.block::<Avx2>(0, 0).cast_const();
        let mut x = inputs.rows.at::<M>(blocks.start);
        for b in 0..blocks.len() {
            if let Some(ahead) = ahead {
                ahead.ask(b);
            }
            let dots = dots_of_both::<FUSED, _, _>(&(*w).steps, x);
            let scale = Avx2::load((*w).scales.as_ptr());
            for_each_row!(ROW of M, {
                let (dots, x) = (dots[ROW], x[ROW]);
                if SCALES_GROUPS {
                    add_unscaled::<ROW>(dots, x, products);
                } else if OFFSETS == 1 {
                    let offset = Avx2::load((*w).offsets.as_ptr());
                    add_scaled_and_offset::<ROW>(dots, scale, offset, x, sums);
                } else {
                    add_scaled::<ROW>(dots, scale, x, sums);
                }
            });
            w = w.add(1);
            for m in 0..M {
                x[m] = x[m].add(1);
            }
            if !SCALES_GROUPS || !(b + 1).is_multiple_of(GROUP) {
                continue;
            }
            for m in 0..M {
                let (products, sums) = (products.add(m * PANEL), sums.add(m * PANEL));
                let total = Avx2::mul_add(Avx2::load(products), scale, Avx2::load(sums));
                Avx2::store(total, sums);
                Avx2::store(Avx2::zeros(), products);
            }
            if OFFSETS == 16 {
                let w = &*room.offsets::<Avx2>(0, b / GROUP);
                let x = inputs.sums_of_groups.at::<M>((blocks.start + b) / GROUP);
                let dots = dots_of_both::<FUSED, _, _>(&w.steps, x);
                let units = Avx2::load(w.units.as_ptr());
                for_each_row!(ROW of M, {
                    add_scaled::<ROW>(dots[ROW], units, x[ROW], sums);
                });
            }
        }
    }
}

/// The sums of the products of some steps' weights with a block of each row.
///
/// # Safety
/// The blocks exist; the processor has AVX2, and AVX-VNNI if products are `FUSED` with sums.
#[inline(always)]
unsafe fn dots_of_both<const FUSED: bool, const M: usize, const COUNT: usize>(
    steps: &[Step; COUNT],
    x: [*const QuantizedBlock; M],
) -> [[__m256i; 2]; M] {
    // SAFETY: the caller's promise; steps lie at multiples of 64.
    unsafe {
        let mut dots = [[_mm256_setzero_si256(); 2]; M];
        for_each_step!(STEP, {
            if STEP < COUNT {
                let w = steps.as_ptr().add(STEP).cast::<__m256i>();
                let w = [_mm256_load_si256(w), _mm256_load_si256(w.add(1))];
                for m in 0..M {
                    dots[m] = match (STEP, FUSED) {
                        (_, true) => {
                            avx_vnni::add_word_products::<{ 4 * STEP }>(dots[m], w, x[m].cast())
                        }
                        (0, false) => word_products::<{ 4 * STEP }>(w, x[m].cast()),
                        _ => add_word_products::<{ 4 * STEP }>(dots[m], w, x[m].cast()),
                    };
                }
            }
        });
        dots
    }
}

/// A function that adds to the sums of row `ROW` what the lines make of a block's products (in `d0` and `d1`) and the row's
/// scale (in `a`). With intrinsics the compiler takes sums for values to be kept in registers, has none, and moves them about.
macro_rules! add_to_sums {
    (
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) { $($line:literal)* } $($operands:tt)*
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The processor has AVX2 and FMA; the block exists, and 16 sums of the row, at a multiple of 64.
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $name<const ROW: usize>(
            dots: [__m256i; 2],
            $($argument: $type,)*
            x: *const QuantizedBlock,
            sums: *mut f32,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    "vbroadcastss {a}, dword ptr [{x} + {at_scale}]",
                    "vcvtdq2ps {d0}, {d0}",
                    "vcvtdq2ps {d1}, {d1}",
                    $($line,)*
                    "vmovaps ymmword ptr [{sums} + {row}], {d0}",
                    "vmovaps ymmword ptr [{sums} + {row} + 32], {d1}",
                    d0 = inout(ymm_reg) dots[0] => _,
                    d1 = inout(ymm_reg) dots[1] => _,
                    a = out(ymm_reg) _,
                    x = in(reg) x,
                    sums = in(reg) sums,
                    row = const ROW * size_of::<[f32; PANEL]>(),
                    at_scale = const std::mem::offset_of!(QuantizedBlock, scale),
                    $($operands)*
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

add_to_sums! {
    /// Products times the row's scale.
    add_unscaled() {
        "vfmadd213ps {d0}, {a}, ymmword ptr [{sums} + {row}]"
        "vfmadd213ps {d1}, {a}, ymmword ptr [{sums} + {row} + 32]"
    }
}

add_to_sums! {
    /// The same times the weights' scale.
    add_scaled(scale: [__m256; 2]) {
        "vmulps {b}, {s0}, {a}"
        "vmulps {a}, {s1}, {a}"
        "vfmadd213ps {d0}, {b}, ymmword ptr [{sums} + {row}]"
        "vfmadd213ps {d1}, {a}, ymmword ptr [{sums} + {row} + 32]"
    }
    b = out(ymm_reg) _,
    s0 = in(ymm_reg) scale[0],
    s1 = in(ymm_reg) scale[1],
}

add_to_sums! {
    /// The same, and the weights' offset times the sum of the row's block.
    add_scaled_and_offset(scale: [__m256; 2], offset: [__m256; 2]) {
        "vmulps {b}, {s0}, {a}"
        "vmulps {a}, {s1}, {a}"
        "vfmadd213ps {d0}, {b}, ymmword ptr [{sums} + {row}]"
        "vfmadd213ps {d1}, {a}, ymmword ptr [{sums} + {row} + 32]"
        "vbroadcastss {b}, dword ptr [{x} + {at_sum}]"
        "vfmadd231ps {d0}, {o0}, {b}"
        "vfmadd231ps {d1}, {o1}, {b}"
    }
    b = out(ymm_reg) _,
    s0 = in(ymm_reg) scale[0],
    s1 = in(ymm_reg) scale[1],
    o0 = in(ymm_reg) offset[0],
    o1 = in(ymm_reg) offset[1],
    at_sum = const std::mem::offset_of!(QuantizedBlock, sum),
}
