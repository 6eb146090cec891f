//! One row: its integers are split into two bytes, once for all panels, and multiplied with weights that stay bytes. Half
//! as many steps of unpacking as for 16 bits, and the same exact sums.

use super::registers::{Eight, Register, Sixteen};
use super::sums::{Factors, Sums};
use super::unpack::Unpack;
use super::{pair, vnni};
use crate::isa::Isa;
use crate::kernels::activations::QuantizedBlock;
use crate::kernels::linear::Linear;
use crate::memory::AlignedBytes;
use crate::pack::{BLOCK, PANEL};
use mettle_plan::BackendError;
use std::arch::x86_64::*;
use std::ops::Range;

/// A block of activations: an integer is `128 * high + low`. Hardly larger than `QuantizedBlock`: a row should leave a
/// first-level cache room for a panel that passes through.
#[derive(Clone, Copy)]
#[repr(C)]
struct SplitBlock {
    high: [i8; BLOCK],
    low: [i8; BLOCK],
    scale: f32,
    sum: f32,
    first_sum: f32,
    last_sum: f32,
}

/// The sums of the integers of a block's halves, for values that something is taken from.
type HalfSums = [i32; 2];

/// One thread's room for a row.
pub struct SplitRow {
    blocks: AlignedBytes,
    half_sums: AlignedBytes,
    columns: usize,
}

impl SplitRow {
    pub fn new(columns: usize) -> Result<SplitRow, BackendError> {
        let room = |bytes| AlignedBytes::zeroed("split activations", columns / BLOCK * bytes);
        Ok(SplitRow {
            blocks: room(size_of::<SplitBlock>())?,
            half_sums: room(size_of::<HalfSums>())?,
            columns,
        })
    }

    pub fn bytes(&self) -> usize {
        self.blocks.len() + self.half_sums.len()
    }

    /// Splits a row.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn fill(&mut self, row: &[QuantizedBlock]) {
        assert!(row.len() <= self.columns / BLOCK, "{} blocks", row.len());
        let blocks = self.blocks.base().cast::<SplitBlock>();
        let half_sums = self.half_sums.base().cast::<HalfSums>();
        for (b, block) in row.iter().enumerate() {
            // SAFETY: just asserted to be inside; any bits are a block; `&mut self` keeps others out.
            let (out, sums) = unsafe { (&mut *blocks.add(b), &mut *half_sums.add(b)) };
            for half in 0..2 {
                // SAFETY: 16 integers and bytes from 16 * half on; the caller's promise.
                unsafe {
                    let x = block.integers.as_ptr().add(16 * half);
                    let x = _mm256_loadu_si256(x.cast());
                    let high = _mm256_srai_epi16::<7>(_mm256_add_epi16(x, _mm256_set1_epi16(64)));
                    let low = _mm256_sub_epi16(x, _mm256_slli_epi16::<7>(high));
                    // Bytes of every eight columns, high ones first; then the order of columns in a block of activations
                    // back to their own (columns 1 and 2 of every four).
                    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(
                        0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,
                    ));
                    let bytes = _mm256_shuffle_epi8(_mm256_packs_epi16(high, low), order);
                    let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes);
                    let high = out.high.as_mut_ptr().add(16 * half);
                    let low = out.low.as_mut_ptr().add(16 * half);
                    _mm_storeu_si128(high.cast(), _mm256_castsi256_si128(bytes));
                    _mm_storeu_si128(low.cast(), _mm256_extracti128_si256::<1>(bytes));
                    sums[half] = sum(x);
                }
            }
            (out.scale, out.sum) = (block.scale, block.sum);
            (out.first_sum, out.last_sum) = (block.first_sum, block.last_sum());
        }
    }
}

/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn sum(integers: __m256i) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        let sums = _mm256_madd_epi16(integers, _mm256_set1_epi16(1));
        let sums = _mm_add_epi32(
            _mm256_castsi256_si128(sums),
            _mm256_extracti128_si256::<1>(sums),
        );
        let sums = _mm_hadd_epi32(sums, sums);
        _mm_cvtsi128_si32(_mm_hadd_epi32(sums, sums))
    }
}

/// The products of each half of a block's columns with the high bytes and with the low ones, added up for each row.
type HalfDots<R> = [[<R as Register>::Integers; 2]; 2];

trait ByteDot: Register {
    /// # Safety
    /// `block` is one in this type's layout; the processor has the instructions.
    unsafe fn halves_of<W: Unpack>(block: *const u8, x: &SplitBlock) -> HalfDots<Self>;
}

impl<const HALF: usize> ByteDot for Eight<HALF> {
    #[inline(always)]
    unsafe fn halves_of<W: Unpack>(block: *const u8, x: &SplitBlock) -> HalfDots<Self> {
        // SAFETY: the caller's promise; 16 bytes of a half are there.
        unsafe {
            let (high, low) = (x.high.as_ptr(), x.low.as_ptr());
            let ([a, b], [c, d]) = (W::bytes::<Self, 0>(block), W::bytes::<Self, 1>(block));
            let ([e, f], [g, h]) = (W::bytes::<Self, 2>(block), W::bytes::<Self, 3>(block));
            let (first, last) = ([a, b, c, d], [e, f, g, h]);
            [
                [sixteen::<W>(first, high), sixteen::<W>(first, low)],
                [
                    sixteen::<W>(last, high.add(16)),
                    sixteen::<W>(last, low.add(16)),
                ],
            ]
        }
    }
}

/// # Safety
/// The processor has AVX2; 16 bytes can be read.
#[inline(always)]
unsafe fn sixteen<W: Unpack>(w: [__m256i; 4], x: *const i8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let x = x.cast::<i16>();
        let ones = _mm256_set1_epi16(1);
        let first = _mm256_add_epi16(
            _mm256_maddubs_epi16(w[0], pair(x)),
            _mm256_maddubs_epi16(w[1], pair(x.add(2))),
        );
        let last = _mm256_add_epi16(
            _mm256_maddubs_epi16(w[2], pair(x.add(4))),
            _mm256_maddubs_epi16(w[3], pair(x.add(6))),
        );
        // Two products of 5 bits with 7, four times, are below 2^15; of 6 bits only twice.
        if W::BYTES.bits <= 5 {
            return _mm256_madd_epi16(_mm256_add_epi16(first, last), ones);
        }
        _mm256_add_epi32(
            _mm256_madd_epi16(first, ones),
            _mm256_madd_epi16(last, ones),
        )
    }
}

impl ByteDot for Sixteen {
    #[inline(always)]
    unsafe fn halves_of<W: Unpack>(block: *const u8, x: &SplitBlock) -> HalfDots<Self> {
        // In turn: each waits for the one four before it, and what waits long fills the processor's queues. Columns 8C.. of
        // the first half and of the last.
        macro_rules! fours {
            ($dots:ident, $first:ident, $last:ident, $c:literal, $i:literal) => {
                $dots[0][0] =
                    add_bytes_at::<{ HIGH + 8 * $c + 4 * $i }>($dots[0][0], $first[$i], x);
                $dots[0][1] = add_bytes_at::<{ LOW + 8 * $c + 4 * $i }>($dots[0][1], $first[$i], x);
                $dots[1][0] =
                    add_bytes_at::<{ HIGH + 16 + 8 * $c + 4 * $i }>($dots[1][0], $last[$i], x);
                $dots[1][1] =
                    add_bytes_at::<{ LOW + 16 + 8 * $c + 4 * $i }>($dots[1][1], $last[$i], x);
            };
        }
        const HIGH: usize = std::mem::offset_of!(SplitBlock, high);
        const LOW: usize = std::mem::offset_of!(SplitBlock, low);
        // SAFETY: the caller's promise.
        unsafe {
            let mut dots = [[_mm512_setzero_si512(); 2]; 2];
            let first = W::bytes::<Self, 0>(block);
            let second = W::bytes::<Self, 1>(block);
            let third = W::bytes::<Self, 2>(block);
            fours!(dots, first, third, 0, 0);
            fours!(dots, first, third, 0, 1);
            let fourth = W::bytes::<Self, 3>(block);
            fours!(dots, second, fourth, 1, 0);
            fours!(dots, second, fourth, 1, 1);
            dots
        }
    }
}

vnni! {
    /// 16 times four weights, and four bytes.
    add_bytes_at: "vpdpbusd", "1to16", zmm_reg, __m512i, SplitBlock
}

/// # Safety
/// As for `Linear::run`, with one row; the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn avx2<W: Unpack>(linear: &Linear<'_>, x: &SplitRow, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, (Sums<Eight<0>>, Sums<Eight<1>>)>(linear, x, panels) }
}

/// # Safety
/// As for `Linear::run`, with one row; the processor has what `Isa::Avx512` stands for.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512<W: Unpack>(linear: &Linear<'_>, x: &SplitRow, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Sums<Sixteen>>(linear, x, panels) }
}

/// A block of the row, and where the weights that it is multiplied with lie.
#[derive(Clone, Copy)]
struct Step<'a> {
    group: *const u8,
    block: *const u8,
    x: &'a SplitBlock,
    half_sums: &'a HalfSums,
}

/// A row's sums in all the registers that a panel takes.
trait OneRow {
    /// # Safety
    /// The processor has the instructions (so for all).
    unsafe fn new() -> Self;

    /// Adds a block's products.
    ///
    /// # Safety
    /// The weights are there in this type's layout.
    unsafe fn add<W: Unpack>(&mut self, step: Step<'_>);

    /// # Safety
    /// As for `add`.
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8);

    fn lanes(self) -> [f32; PANEL];
}

impl OneRow for (Sums<Eight<0>>, Sums<Eight<1>>) {
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: the caller's promise.
        unsafe { (Sums::new(), Sums::new()) }
    }

    #[inline(always)]
    unsafe fn add<W: Unpack>(&mut self, step: Step<'_>) {
        // SAFETY: the caller's promise.
        unsafe {
            add_block::<W, _>(&mut self.0, step);
            add_block::<W, _>(&mut self.1, step);
        }
    }

    #[inline(always)]
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8) {
        // SAFETY: the caller's promise.
        unsafe {
            self.0.end_group::<W>(group, W::BYTES.times);
            self.1.end_group::<W>(group, W::BYTES.times);
        }
    }

    #[inline(always)]
    fn lanes(self) -> [f32; PANEL] {
        // SAFETY: any bits are floats, and these are as many.
        unsafe { std::mem::transmute([self.0.all(), self.1.all()]) }
    }
}

impl OneRow for Sums<Sixteen> {
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Sums::new() }
    }

    #[inline(always)]
    unsafe fn add<W: Unpack>(&mut self, step: Step<'_>) {
        // SAFETY: the caller's promise.
        unsafe { add_block::<W, _>(self, step) };
    }

    #[inline(always)]
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { self.end_group::<W>(group, W::BYTES.times) };
    }

    #[inline(always)]
    fn lanes(self) -> [f32; PANEL] {
        // SAFETY: any bits are floats, and these are as many.
        unsafe { std::mem::transmute(self.all()) }
    }
}

#[inline(always)]
unsafe fn all<W: Unpack, S: OneRow>(linear: &Linear<'_>, x: &SplitRow, panels: Range<usize>) {
    assert!(linear.rows == 1 && linear.weights.columns <= x.columns);
    // SAFETY: the caller's promise; `group` is a whole group of blocks in this type's layout, and the row has as many
    // blocks as a panel.
    unsafe {
        for panel in panels {
            let mut sums = S::new();
            let mut half_sums = x.half_sums.base().cast::<HalfSums>();
            let mut x = x.blocks.base().cast::<SplitBlock>();
            for group in linear.weights.panel(panel).chunks_exact(W::GROUP_BYTES) {
                let group = group.as_ptr();
                for j in 0..W::GROUP_BLOCKS {
                    let step = Step {
                        group,
                        block: group.add(W::HEADER + j * W::BLOCK_BYTES),
                        x: &*x,
                        half_sums: &*half_sums,
                    };
                    sums.add::<W>(step);
                    (x, half_sums) = (x.add(1), half_sums.add(1));
                }
                sums.end_group::<W>(group);
            }
            linear.store(panel * PANEL, 0, &sums.lanes());
        }
    }
}

/// # Safety
/// As for `OneRow::add`.
#[inline(always)]
unsafe fn add_block<W: Unpack, R: ByteDot>(sums: &mut Sums<R>, step: Step<'_>) {
    let Step {
        group, block, x, ..
    } = step;
    // SAFETY: the caller's promise.
    unsafe {
        let dots = dot::<W, R>(block, x, step.half_sums);
        let factors = Factors {
            scale: x.scale,
            sum: x.sum,
            first_sum: x.first_sum,
            last_sum: x.last_sum,
        };
        sums.add::<W>(dots, group, block, factors);
    }
}

/// The exact products of a block with a row's integers. No closures here: they would not be compiled for the caller's
/// instructions.
#[inline(always)]
unsafe fn dot<W: Unpack, R: ByteDot>(
    block: *const u8,
    x: &SplitBlock,
    sums: &HalfSums,
) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe {
        let [first, last] = R::halves_of::<W>(block, x);
        if !W::SUB_SCALED {
            let high = R::plus(first[0], last[0]);
            let dot = whole::<R>([high, R::plus(first[1], last[1])]);
            return match W::BYTES.less {
                0 => dot,
                _ => less::<W, R>(dot, sums[0] + sums[1]),
            };
        }
        let (mut first, mut last) = (whole::<R>(first), whole::<R>(last));
        if W::BYTES.less > 0 {
            first = less::<W, R>(first, sums[0]);
            last = less::<W, R>(last, sums[1]);
        }
        R::plus(
            R::times(first, W::sub_scale::<R>(block, 0)),
            R::times(last, W::sub_scale::<R>(block, 1)),
        )
    }
}

#[inline(always)]
unsafe fn whole<R: Register>([high, low]: [R::Integers; 2]) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe { R::plus(R::integers_left::<7>(high), low) }
}

/// Without what the values are too high by.
#[inline(always)]
unsafe fn less<W: Unpack, R: Register>(dot: R::Integers, sum: i32) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe { R::minus(dot, R::of_integers(W::BYTES.less * sum)) }
}

/// Whether products of one row go this way. Without VNNI bytes are added in 16 bits, two at a time.
pub const fn takes<W: Unpack>(isa: Isa) -> bool {
    match isa {
        Isa::Avx512 => W::BYTES.bits > 0,
        _ => W::BYTES.bits > 0 && W::BYTES.bits <= 6,
    }
}
