//! AVX-VNNI: in AVX2's registers, but the instruction that multiplies adds to a sum of 32 bits. Nothing has to fit 16 bits on the
//! way, so that one row's products are those of AVX-512, of both halves of a panel's rows in turn.

use super::for_each_eight;
use super::one_row::{Dots, finished, start, whole};
use super::pieces::nibble_pair;
use super::registers::Eight;
use super::split_row::{Parts, SplitSums};
use super::unpack::Unpack;
use crate::pack::BLOCK;
use std::arch::x86_64::*;

/// A function that adds to sums the products of two registers of weights with the four bytes at byte `OFFSET` of `x`, neighbours
/// added. With intrinsics the compiler keeps all bytes of a row in registers that it does not have.
macro_rules! add_both {
    ($name:ident: $instruction:literal) => {
        /// # Safety
        /// The processor has AVX-VNNI; the bytes are there.
        #[inline]
        #[target_feature(enable = "avx2,avxvnni")]
        pub unsafe fn $name<const OFFSET: usize>(
            sums: [__m256i; 2],
            w: [__m256i; 2],
            x: *const u8,
        ) -> [__m256i; 2] {
            let [mut first, mut last] = sums;
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    "vpbroadcastd {b}, dword ptr [{x} + {offset}]",
                    concat!("{{vex}} ", $instruction, " {first}, {w0}, {b}"),
                    concat!("{{vex}} ", $instruction, " {last}, {w1}, {b}"),
                    first = inout(ymm_reg) first,
                    last = inout(ymm_reg) last,
                    b = out(ymm_reg) _,
                    w0 = in(ymm_reg) w[0],
                    w1 = in(ymm_reg) w[1],
                    x = in(reg) x,
                    offset = const OFFSET,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [first, last]
        }
    };
}
add_both!(add_byte_products: "vpdpbusd");
add_both!(add_word_products: "vpdpwssd");

/// `sum` plus the products of eight pairs. With an intrinsic the compiler takes it apart into a multiplication and an addition.
///
/// # Safety
/// The processor has AVX-VNNI.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
pub unsafe fn add_products(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
    let mut sum = sum;
    // SAFETY: it only computes.
    unsafe {
        std::arch::asm!(
            "{{vex}} vpdpwssd {sum}, {w}, {x}",
            sum = inout(ymm_reg) sum,
            w = in(ymm_reg) w,
            x = in(ymm_reg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// The products of both halves of a panel's rows: with high bytes and with low ones.
type Both = [[__m256i; 2]; 2];

/// Adds the products of columns `8C..8C + 8` of a panel with those of a row's `N` columns.
macro_rules! add_eight {
    ($dots:expr, $w:expr, $x:expr, $n:expr, $c:expr) => {{
        let (dots, [first, last]): (&mut Both, _) = ($dots, $w);
        let [one, two] = [[first[0], last[0]], [first[1], last[1]]];
        dots[0] = add_byte_products::<{ 8 * $c }>(dots[0], one, $x);
        dots[1] = add_byte_products::<{ $n + 8 * $c }>(dots[1], one, $x);
        dots[0] = add_byte_products::<{ 8 * $c + 4 }>(dots[0], two, $x);
        dots[1] = add_byte_products::<{ $n + 8 * $c + 4 }>(dots[1], two, $x);
    }};
}

/// The exact products of a block with a row's integers, of both halves of a panel's rows.
///
/// # Safety
/// `block` is one in this type's layout; the processor has AVX-VNNI.
#[inline(always)]
pub unsafe fn dots_of_both<W: Unpack>(block: *const u8, parts: Parts, b: usize) -> [__m256i; 2] {
    let x = parts.blocks.wrapping_add(b).cast::<u8>();
    // SAFETY: the caller's promise.
    unsafe {
        let starts = [
            start::<W, Eight<0>>(parts, b),
            start::<W, Eight<1>>(parts, b),
        ];
        // Of both halves of the columns.
        let mut dots: [Both; 2] =
            [0, 1].map(|half| [0, 1].map(|part| [starts[0][half][part], starts[1][half][part]]));
        for_each_eight!(C, {
            let w = [
                W::bytes::<Eight<0>, C>(block),
                W::bytes::<Eight<1>, C>(block),
            ];
            add_eight!(&mut dots[C / 2], w, x, BLOCK, C);
        });
        let of = |rows: usize| -> (Dots<Eight<0>>, Dots<Eight<0>>) {
            let [first, last] = dots;
            (
                [first[0][rows], first[1][rows]],
                [last[0][rows], last[1][rows]],
            )
        };
        [
            finished::<W, Eight<0>>(block, of(0), parts, b),
            finished::<W, Eight<1>>(block, of(1), parts, b),
        ]
    }
}

/// The same for 16 columns, of two chunks of nibbles.
///
/// # Safety
/// The chunks are there; the processor has AVX-VNNI.
#[inline(always)]
pub unsafe fn dots_of_nibbles(chunks: *const u8, x: *const SplitSums) -> [__m256i; 2] {
    const COLUMNS: usize = 16;
    let x = x.cast::<u8>();
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots: Both = [[_mm256_setzero_si256(); 2]; 2];
        for_each_eight!(C, {
            if C < 2 {
                let w = [
                    nibble_pair::<Eight<0>>(chunks, C),
                    nibble_pair::<Eight<1>>(chunks, C),
                ];
                add_eight!(&mut dots, w, x, COLUMNS, C);
            }
        });
        let [high, low] = dots;
        [
            whole::<Eight<0>>([high[0], low[0]]),
            whole::<Eight<0>>([high[1], low[1]]),
        ]
    }
}
