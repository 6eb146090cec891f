//! One row with AVX2: both halves of a panel's rows in turn.

use super::one_row::{added, scaled};
use super::pieces::{nibble_pair, widen_unsigned};
use super::registers::Eight;
use super::split_row::{Parts, SplitBytes, SplitSums};
use super::unpack::Unpack;
use super::{add_byte_products, add_word_products, byte_products, for_each_eight, word_products};
use crate::pack::BLOCK;
use std::arch::x86_64::*;

/// Bytes of AVX2: products of pairs, added up in 16 bits for as long as they fit.
struct BothHalves {
    /// How many times four columns fit, of high bytes (127 at the most) and of low ones (64): each adds two products.
    fit: [usize; 2],
    /// Products with high bytes and with low ones, of both halves of a panel's rows.
    words: [[__m256i; 2]; 2],
}

impl BothHalves {
    /// For values of so many bits.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn new(bits: u32) -> BothHalves {
        BothHalves {
            fit: match bits {
                // 16 * 15 * 127 < 2^15.
                ..=4 => [8, 8],
                // 8 * 31 * 127 and 16 * 31 * 64.
                5 => [4, 8],
                // 4 * 63 * 127 and 8 * 63 * 64.
                6 => [2, 4],
                _ => unreachable!("products of {bits} bits do not fit 16"),
            },
            // SAFETY: the caller's promise.
            words: [[unsafe { _mm256_setzero_si256() }; 2]; 2],
        }
    }

    /// Adds the products of the four columns whose bytes lie at `HIGH` and at `LOW` of `x`; and to `dots`, times `factors`, what
    /// has to be added up in 32 bits before more follows, at the latest after `columns` columns.
    ///
    /// # Safety
    /// The processor has AVX2; the bytes are there.
    #[inline(always)]
    unsafe fn add<const N: usize, const HIGH: usize, const LOW: usize>(
        &mut self,
        dots: &mut [__m256i; 2],
        w: [__m256i; 2],
        x: *const SplitBytes<N>,
        columns: usize,
        factors: [[__m256i; 2]; 2],
    ) {
        let (four, x) = (HIGH / 4, x.cast());
        // SAFETY: the caller's promise.
        unsafe {
            for k in 0..2 {
                let fit = self.fit[k].min(columns / 4);
                self.words[k] = match (k, four % fit) {
                    (0, 0) => byte_products::<HIGH>(w, x),
                    (0, _) => add_byte_products::<HIGH>(self.words[k], w, x),
                    (_, 0) => byte_products::<LOW>(w, x),
                    _ => add_byte_products::<LOW>(self.words[k], w, x),
                };
                if (four + 1).is_multiple_of(fit) {
                    for r in 0..2 {
                        let words = _mm256_madd_epi16(self.words[k][r], factors[k][r]);
                        dots[r] = _mm256_add_epi32(dots[r], words);
                    }
                }
            }
        }
    }
}

/// Adds the products of columns `8C..8C + 8` of a panel with those of a row's `N` columns.
macro_rules! add_eight {
    ($both:ident, $dots:expr, $w:expr, $x:expr, $n:ident, $c:ident, $columns:expr, $factors:expr) => {
        let ([first, last], dots, x) = ($w, &mut $dots, $x);
        let (w, columns) = ([first[0], last[0]], $columns);
        $both.add::<$n, { 8 * $c }, { $n + 8 * $c }>(dots, w, x, columns, $factors);
        let w = [first[1], last[1]];
        $both.add::<$n, { 8 * $c + 4 }, { $n + 8 * $c + 4 }>(dots, w, x, columns, $factors);
    };
}

/// What products with high bytes and with low ones count.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn weights_of_bytes() -> [[__m256i; 2]; 2] {
    // SAFETY: the caller's promise.
    unsafe { [[_mm256_set1_epi16(128); 2], [_mm256_set1_epi16(1); 2]] }
}

/// The exact products of a block with a row's integers, of both halves of a panel's rows. They take turns: a row's bytes
/// are not kept, for which registers do not suffice.
///
/// # Safety
/// `block` is one in this type's layout; the processor has AVX2.
#[inline(always)]
pub unsafe fn dots_of_both<W: Unpack>(block: *const u8, x: Parts, b: usize) -> [__m256i; 2] {
    let columns = if W::SUB_SCALED { 16 } else { BLOCK };
    // SAFETY: the caller's promise.
    unsafe {
        let factors = weights_of_bytes();
        let mut halves = [start::<W>(x, b, 0), start::<W>(x, b, 1)];
        let mut both = BothHalves::new(0);
        for_each_eight!(C, {
            let half = if W::SUB_SCALED { C / 2 } else { 0 };
            if C.is_multiple_of(2) && (C == 0 || W::SUB_SCALED) {
                both = BothHalves::new(W::BYTES.bits_of_half(C / 2));
            }
            let w = [
                W::bytes::<Eight<0>, C>(block),
                W::bytes::<Eight<1>, C>(block),
            ];
            let x = x.blocks.add(b);
            add_eight!(both, halves[half], w, x, BLOCK, C, columns, factors);
        });
        if !W::SUB_SCALED {
            return halves[0];
        }
        [
            scaled::<W, Eight<0>>(block, [halves[0][0], halves[1][0]]),
            scaled::<W, Eight<1>>(block, [halves[0][1], halves[1][1]]),
        ]
    }
}

/// What the products of a half of the columns, or of all, start with: nothing, or what values are too high by.
///
/// # Safety
/// The block is there; the processor has AVX2.
#[inline(always)]
unsafe fn start<W: Unpack>(x: Parts, b: usize, half: usize) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let of_half = x.less_of_halves.add(b).cast::<i32>().add(half);
        let of_all = x.less_of_all.add(b);
        let less = match (W::BYTES.less, W::SUB_SCALED) {
            (0, _) => _mm256_setzero_si256(),
            (4, true) => _mm256_set1_epi32(*of_half),
            (32, true) => times_power_of_two::<3>(of_half),
            (8, false) => times_power_of_two::<3>(of_all),
            (16, false) => times_power_of_two::<4>(of_all),
            (128, false) => times_power_of_two::<7>(of_all),
            (less, _) => unreachable!("{less} is taken away from no type's values"),
        };
        [less; 2]
    }
}

/// The same of values of more than six bits, whose products with bytes do not fit 16: widened, and multiplied with the row's
/// integers as they are.
///
/// # Safety
/// As for `dots_of_both`; a block's integers can be read.
#[inline(always)]
pub unsafe fn dots_of_words<W: Unpack>(
    block: *const u8,
    integers: *const i16,
    x: Parts,
    b: usize,
) -> [__m256i; 2] {
    assert!(!W::SUB_SCALED);
    // SAFETY: the caller's promise.
    unsafe {
        // Two chains of additions for each half.
        let mut dots = [start::<W>(x, b, 0); 2];
        for_each_eight!(C, {
            let first = widen_unsigned::<Eight<0>>(W::bytes::<Eight<0>, C>(block));
            let last = widen_unsigned::<Eight<1>>(W::bytes::<Eight<1>, C>(block));
            let x = integers.add(8 * C).cast();
            dots[0] = add_word_products::<0>(dots[0], [first[0], last[0]], x);
            dots[1] = match C {
                0 => word_products::<4>([first[1], last[1]], x),
                _ => add_word_products::<4>(dots[1], [first[1], last[1]], x),
            };
            dots[0] = add_word_products::<8>(dots[0], [first[2], last[2]], x);
            dots[1] = add_word_products::<12>(dots[1], [first[3], last[3]], x);
        });
        added::<Eight<0>>(dots[0], dots[1])
    }
}

/// The same for 16 columns, of two chunks of nibbles.
///
/// # Safety
/// The chunks are there; the processor has AVX2.
#[inline(always)]
pub unsafe fn dots_of_nibbles(chunks: *const u8, x: *const SplitSums) -> [__m256i; 2] {
    const COLUMNS: usize = 16;
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots = [_mm256_setzero_si256(); 2];
        let (mut both, factors) = (BothHalves::new(4), weights_of_bytes());
        for_each_eight!(C, {
            if C < 2 {
                let w = [
                    nibble_pair::<Eight<0>>(chunks, C),
                    nibble_pair::<Eight<1>>(chunks, C),
                ];
                add_eight!(both, dots, w, x, COLUMNS, C, COLUMNS, factors);
            }
        });
        dots
    }
}

/// An integer times `2^N`. With intrinsics the compiler shifts it before it fills a register with it, which takes it one
/// step more.
///
/// # Safety
/// The processor has AVX2; the integer is there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn times_power_of_two<const N: usize>(integer: *const i32) -> __m256i {
    let times;
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!(
            "vpbroadcastd {times}, dword ptr [{integer}]",
            "vpslld {times}, {times}, {n}",
            times = out(ymm_reg) times,
            integer = in(reg) integer,
            n = const N,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    times
}
