//! Products with AVX2 or AVX-512: few rows straight from the packed weights, many rows from panels widened into the cache, as
//! tiles where there is AMX.

mod amx;
mod avx_vnni;
mod both_halves;
mod dense;
mod direct;
mod one_row;
mod pieces;
mod registers;
mod split_row;
mod sums;
mod tiled;
mod unpack;

use self::unpack::Unpack;
use super::{Input, Linear};
use crate::isa::{Isa, asks_far};
use crate::kernels::activations::{QuantizedBlock, QuantizedRows};
use crate::memory::Rows;
use crate::pack::layout::{F8, with_layout};
use mettle_plan::BackendError;
use mettle_tensor::DType;
use std::arch::x86_64::*;
use std::ops::Range;

pub use amx::TILE_LOOP;
use amx::TileRoom;
use split_row::SplitRow;
pub use tiled::SUM_LOOP;
use tiled::WidePanel;

/// Rows up to which widening in registers is the faster way. AVX2 has registers for four rows and widens again for the next.
const AVX2_DIRECT_ROWS: usize = 4;
const AVX512_DIRECT_ROWS: usize = 8;

/// What one thread works in.
pub struct Room {
    wide: WidePanel,
    tiles: TileRoom,
    split: SplitRow,
    /// Whether one row's weights are asked for far ahead, into the first-level cache.
    asks_far: bool,
}

impl Room {
    /// For inputs of so many columns at the most.
    pub fn new(columns: usize) -> Result<Room, BackendError> {
        Ok(Room {
            wide: WidePanel::new()?,
            tiles: TileRoom::new()?,
            split: SplitRow::new(columns)?,
            asks_far: asks_far(),
        })
    }

    pub fn bytes(&self) -> usize {
        self.wide.bytes() + self.tiles.bytes() + self.split.bytes()
    }

    /// For `Input::One`.
    ///
    /// # Safety
    /// The processor has AVX2.
    pub unsafe fn split(&mut self, row: &[QuantizedBlock], sums: &[QuantizedBlock]) {
        // SAFETY: the caller's promise.
        unsafe { self.split.fill(row, sums) }
    }
}

/// # Safety
/// As for `Linear::run`, and the processor has the instruction set.
pub unsafe fn run(linear: &Linear<'_>, isa: Isa, panels: Range<usize>, room: &mut Room) {
    // SAFETY: the caller's promise, for each type alike.
    unsafe {
        match linear.input {
            Input::Quantized(x) | Input::One(x) => with_layout!(
                linear.weights.dtype,
                W => quantized::<W>(linear, isa, x, panels, room),
                dense => unreachable!("dense weights take dense activations")
            ),
            Input::Dense(x) => match linear.weights.dtype {
                DType::F32 => dense::<dense::F32>(linear, isa, x, panels, room),
                DType::F16 => dense::<dense::F16>(linear, isa, x, panels, room),
                DType::BF16 => dense::<dense::Bf16>(linear, isa, x, panels, room),
                DType::F8 => dense::<F8>(linear, isa, x, panels, room),
                integers => unreachable!("{integers} weights take quantized activations"),
            },
        }
    }
}

/// # Safety
/// As for `run`.
unsafe fn quantized<W: Unpack>(
    linear: &Linear<'_>,
    isa: Isa,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut Room,
) {
    let (wide, split) = (&mut room.wide, &room.split);
    let is_split = matches!(linear.input, Input::One(_));
    // SAFETY: the caller's promise.
    unsafe {
        let many = linear.rows > AVX512_DIRECT_ROWS;
        if many && isa.has_tiles() && amx::takes_tiles::<W>() {
            let (tiles, first) = x.tiles().expect("many rows are made with tiles");
            return amx::run::<W>(linear, tiles, first, panels, &mut room.tiles);
        }
        match (isa, linear.rows) {
            (Isa::Avx512 | Isa::Amx, _) if is_split && room.asks_far => {
                one_row::avx512_asking::<W>(linear, x, split, panels)
            }
            (Isa::Avx512 | Isa::Amx, _) if is_split => {
                one_row::avx512::<W>(linear, x, split, panels)
            }
            (Isa::Avx512 | Isa::Amx, ..=AVX512_DIRECT_ROWS) => {
                direct::avx512::<W>(linear, x, panels)
            }
            (Isa::Avx512 | Isa::Amx, _) => tiled::avx512::<W>(linear, x, panels, wide),
            (Isa::AvxVnni, _) if is_split => one_row::avx_vnni::<W>(linear, x, split, panels),
            (Isa::AvxVnni, ..=AVX2_DIRECT_ROWS) => direct::avx_vnni::<W>(linear, x, panels),
            (Isa::AvxVnni, _) => tiled::avx_vnni::<W>(linear, x, panels, wide),
            (Isa::Avx2, _) if is_split => one_row::avx2::<W>(linear, x, split, panels),
            (Isa::Avx2, ..=AVX2_DIRECT_ROWS) => direct::avx2::<W>(linear, x, panels),
            (Isa::Avx2, _) => tiled::avx2::<W>(linear, x, panels, wide),
            (Isa::Scalar, _) => unreachable!("scalar kernels are elsewhere"),
        }
    }
}

/// # Safety
/// As for `run`.
unsafe fn dense<E: dense::DenseElement>(
    linear: &Linear<'_>,
    isa: Isa,
    x: Rows,
    panels: Range<usize>,
    room: &Room,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            Isa::Avx512 | Isa::Amx if room.asks_far => dense::avx512_asking::<E>(linear, x, panels),
            Isa::Avx512 | Isa::Amx => dense::avx512::<E>(linear, x, panels),
            Isa::Avx2 | Isa::AvxVnni => dense::avx2::<E>(linear, x, panels),
            Isa::Scalar => unreachable!("scalar kernels are elsewhere"),
        }
    }
}

/// `$body` for the four times eight columns of a block, with their number a constant.
macro_rules! for_each_eight {
    ($c:ident, $body:block) => {
        for_each_eight!(@ $c, $body, 0 1 2 3)
    };
    (@ $c:ident, $body:block, $($number:literal)*) => {
        $({
            const $c: usize = $number;
            $body
        })*
    };
}
use for_each_eight;

/// Two neighbouring integers, for all rows of a panel.
#[inline(always)]
unsafe fn pair(integers: *const i16) -> __m256i {
    // SAFETY: the caller points at two integers of a row; any alignment is allowed.
    unsafe { _mm256_set1_epi32(integers.cast::<i32>().read_unaligned()) }
}

/// `sum` plus the products of eight pairs. With intrinsics the compiler reorders the additions of all steps and runs out of
/// registers.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_products(sum: __m256i, w: __m256i, x: __m256i) -> __m256i {
    let mut sum = sum;
    // SAFETY: it only computes.
    unsafe {
        std::arch::asm!(
            "vpmaddwd {products}, {w}, {x}",
            "vpaddd {sum}, {sum}, {products}",
            sum = inout(ymm_reg) sum,
            w = in(ymm_reg) w,
            x = in(ymm_reg) x,
            products = out(ymm_reg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Two functions of AVX2: the products of two registers of weights with the four bytes at byte `OFFSET` of `x`, neighbours
/// added, and sums plus those. With intrinsics the compiler keeps all bytes of a row in registers that it does not have, and
/// reorders additions.
macro_rules! products_of_both {
    ($products:ident, $add:ident: $multiply:literal, $plus:literal) => {
        /// # Safety
        /// The processor has AVX2; the bytes are there.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $products<const OFFSET: usize>(w: [__m256i; 2], x: *const u8) -> [__m256i; 2] {
            let (first, last);
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    "vpbroadcastd {last}, dword ptr [{x} + {offset}]",
                    concat!($multiply, " {first}, {w0}, {last}"),
                    concat!($multiply, " {last}, {w1}, {last}"),
                    first = out(ymm_reg) first,
                    last = out(ymm_reg) last,
                    w0 = in(ymm_reg) w[0],
                    w1 = in(ymm_reg) w[1],
                    x = in(reg) x,
                    offset = const OFFSET,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [first, last]
        }

        /// # Safety
        /// The same.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $add<const OFFSET: usize>(
            sums: [__m256i; 2],
            w: [__m256i; 2],
            x: *const u8,
        ) -> [__m256i; 2] {
            let [mut first, mut last] = sums;
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    "vpbroadcastd {b}, dword ptr [{x} + {offset}]",
                    concat!($multiply, " {a}, {w0}, {b}"),
                    concat!($multiply, " {b}, {w1}, {b}"),
                    concat!($plus, " {first}, {first}, {a}"),
                    concat!($plus, " {last}, {last}, {b}"),
                    first = inout(ymm_reg) first,
                    last = inout(ymm_reg) last,
                    a = out(ymm_reg) _,
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
products_of_both!(byte_products, add_byte_products: "vpmaddubsw", "vpaddw");
products_of_both!(word_products, add_word_products: "vpmaddwd", "vpaddd");

/// A function that adds to `sum` the products of `w` with the four bytes at byte `OFFSET` of `x`, which are the same for all
/// lanes. The intrinsics would do, but the compiler takes them apart into multiplications and additions again.
macro_rules! vnni {
    ($(#[$doc:meta])* $name:ident: $instruction:literal, $lanes:literal, $register:ident, $vector:ty, $x:ty) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The processor has AVX-512 VL and VNNI, and the bytes exist.
        #[inline]
        #[target_feature(enable = "avx512f,avx512vl,avx512vnni")]
        unsafe fn $name<const OFFSET: usize>(sum: $vector, w: $vector, x: *const $x) -> $vector {
            let mut sum = sum;
            // SAFETY: the caller's promise.
            unsafe {
                std::arch::asm!(
                    concat!($instruction, " {sum}, {w}, dword ptr [{x} + {offset}]{{", $lanes, "}}"),
                    sum = inout($register) sum,
                    w = in($register) w,
                    x = in(reg) x,
                    offset = const OFFSET,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            sum
        }
    };
}
use vnni;
