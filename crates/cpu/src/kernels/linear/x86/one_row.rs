//! One row: its integers are split into two bytes, once for all panels, and multiplied with weights that stay bytes. Half
//! as many steps of unpacking as for 16 bits, and the same exact sums.

use super::pieces::nibble_pair;
use super::registers::{Eight, Register, Sixteen};
use super::sums::{Factors, Sums};
use super::unpack::Unpack;
use super::{for_each_eight, vnni};
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
}

/// The sums of the integers of a block's halves, for values that something is taken from.
type HalfSums = [i32; 2];

/// One thread's room for a row.
pub struct SplitRow {
    blocks: AlignedBytes,
    half_sums: AlignedBytes,
    /// The sums that 16 offsets a group take, 16 a block.
    groups: AlignedBytes,
    columns: usize,
}

impl SplitRow {
    pub fn new(columns: usize) -> Result<SplitRow, BackendError> {
        let room = |bytes| AlignedBytes::zeroed("split activations", columns / BLOCK * bytes);
        Ok(SplitRow {
            blocks: room(size_of::<SplitBlock>())?,
            half_sums: room(size_of::<HalfSums>())?,
            groups: room(size_of::<SplitBlock>())?,
            columns,
        })
    }

    pub fn bytes(&self) -> usize {
        self.blocks.len() + self.half_sums.len() + self.groups.len()
    }

    /// Splits a row and the sums of its groups.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn fill(&mut self, row: &[QuantizedBlock], groups: &[QuantizedBlock]) {
        assert!(row.len() <= self.columns / BLOCK, "{} blocks", row.len());
        assert!(groups.len() <= row.len(), "{} groups", groups.len());
        let blocks = self.blocks.base().cast::<SplitBlock>();
        let half_sums = self.half_sums.base().cast::<HalfSums>();
        for (b, block) in row.iter().enumerate() {
            // SAFETY: just asserted to be inside; any bits are a block; `&mut self` keeps others out; the caller's promise.
            unsafe { *half_sums.add(b) = split(block, &mut *blocks.add(b)) };
        }
        let out = self.groups.base().cast::<SplitBlock>();
        for (g, group) in groups.iter().enumerate() {
            // SAFETY: the same.
            unsafe { split(group, &mut *out.add(g)) };
        }
    }
}

/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn split(block: &QuantizedBlock, out: &mut SplitBlock) -> HalfSums {
    let mut sums = [0; 2];
    for half in 0..2 {
        // SAFETY: 16 integers and bytes from 16 * half on; the caller's promise.
        unsafe {
            let x = block.integers.as_ptr().add(16 * half);
            let x = _mm256_loadu_si256(x.cast());
            let high = _mm256_srai_epi16::<7>(_mm256_add_epi16(x, _mm256_set1_epi16(64)));
            let low = _mm256_sub_epi16(x, _mm256_slli_epi16::<7>(high));
            // Bytes of every eight columns, high ones first; then the order of columns in a block of activations back to
            // their own (columns 1 and 2 of every four).
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
    sums
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

/// Products with the high bytes and with the low ones, added up for each row.
type Dots<R> = [<R as Register>::Integers; 2];

/// The same of both halves of a panel's rows: `[of high or of low bytes][of rows]`.
type BothDots = [[__m256i; 2]; 2];

/// Bytes of AVX2: products of pairs, added up in 16 bits for as long as they fit.
struct BothHalves {
    /// Four columns whose products fit, of high bytes (127 at the most) and of low ones (64).
    fit: [usize; 2],
    words: BothDots,
}

impl BothHalves {
    /// For values of so many bits.
    #[inline(always)]
    unsafe fn new(bits: u32) -> BothHalves {
        BothHalves {
            fit: match bits {
                ..=4 => [8, 8],
                5 => [4, 8],
                _ => [2, 4],
            },
            // SAFETY: the caller's promise.
            words: [[unsafe { _mm256_setzero_si256() }; 2]; 2],
        }
    }

    /// Adds the products of columns `4 * four..4 * four + 4` of `columns`, and what has to be added up to 32 bits to `dots`,
    /// times `factors`.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn add(
        &mut self,
        dots: &mut BothDots,
        w: [__m256i; 2],
        x: &SplitBlock,
        four: usize,
        columns: usize,
        factors: [__m256i; 2],
    ) {
        // SAFETY: the caller's promise; there are 32 columns.
        unsafe {
            for (k, x) in [x.high.as_ptr(), x.low.as_ptr()].into_iter().enumerate() {
                let (x, fit) = (x.add(4 * four), self.fit[k].min(columns / 4));
                self.words[k] = match four % fit {
                    0 => byte_products(w, x),
                    _ => add_byte_products(self.words[k], w, x),
                };
                if (four + 1) % fit == 0 {
                    for r in 0..2 {
                        let words = _mm256_madd_epi16(self.words[k][r], factors[r]);
                        dots[k][r] = _mm256_add_epi32(dots[k][r], words);
                    }
                }
            }
        }
    }
}

/// The exact products of a block with a row's integers, of both halves of a panel's rows. They take turns: a row's bytes
/// are not kept, for which registers do not suffice.
///
/// # Safety
/// `block` is one in this type's layout; the processor has AVX2.
#[inline(always)]
unsafe fn dots_of_both<W: Unpack>(
    block: *const u8,
    x: &SplitBlock,
    sums: &HalfSums,
) -> [__m256i; 2] {
    // Where nothing is to be taken away, sub-scales are multiplied in where only neighbours would be added.
    let in_words = W::SUB_SCALED && W::BYTES.less == 0;
    let columns = if W::SUB_SCALED { 16 } else { BLOCK };
    // SAFETY: the caller's promise.
    unsafe {
        let mut halves = [[[_mm256_setzero_si256(); 2]; 2]; 2];
        let mut factors = [_mm256_set1_epi16(1); 2];
        let mut both = BothHalves::new(0);
        for_each_eight!(C, {
            let half = if W::SUB_SCALED { C / 2 } else { 0 };
            if C % 2 == 0 && (C == 0 || W::SUB_SCALED) {
                both = BothHalves::new(W::BYTES.bits_of_half(C / 2));
                if in_words {
                    factors = [
                        W::sub_scale_words::<Eight<0>>(block, half),
                        W::sub_scale_words::<Eight<1>>(block, half),
                    ];
                }
            }
            let (first, last) = (
                W::bytes::<Eight<0>, C>(block),
                W::bytes::<Eight<1>, C>(block),
            );
            for i in 0..2 {
                let w = [first[i], last[i]];
                both.add(&mut halves[half], w, x, 2 * C + i, columns, factors);
            }
        });
        let [first, last] = halves;
        let (a, b) = ([first[0][0], first[1][0]], [last[0][0], last[1][0]]);
        let (c, d) = ([first[0][1], first[1][1]], [last[0][1], last[1][1]]);
        match in_words {
            true => [both_halves::<Eight<0>>(a, b), both_halves::<Eight<1>>(c, d)],
            false => [
                finished::<W, Eight<0>>(block, a, b, sums),
                finished::<W, Eight<1>>(block, c, d, sums),
            ],
        }
    }
}

/// The same for 16 columns, of two chunks of nibbles.
///
/// # Safety
/// The chunks are there; the processor has AVX2.
#[inline(always)]
unsafe fn dots_of_nibbles(chunks: *const u8, x: &SplitBlock) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots = [[_mm256_setzero_si256(); 2]; 2];
        let (mut both, ones) = (BothHalves::new(4), [_mm256_set1_epi16(1); 2]);
        for c in 0..2 {
            let (first, last) = (
                nibble_pair::<Eight<0>>(chunks, c),
                nibble_pair::<Eight<1>>(chunks, c),
            );
            for i in 0..2 {
                both.add(&mut dots, [first[i], last[i]], x, 2 * c + i, 16, ones);
            }
        }
        [
            whole::<Eight<0>>([dots[0][0], dots[1][0]]),
            whole::<Eight<1>>([dots[0][1], dots[1][1]]),
        ]
    }
}

/// The products of four columns of two times eight rows with four bytes, neighbours added. With intrinsics the compiler
/// keeps all bytes of a row in registers that it does not have.
///
/// # Safety
/// The processor has AVX2; the bytes are there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn byte_products(w: [__m256i; 2], x: *const i8) -> [__m256i; 2] {
    let (first, last);
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!(
            "vpbroadcastd {last}, dword ptr [{x}]",
            "vpmaddubsw {first}, {w0}, {last}",
            "vpmaddubsw {last}, {w1}, {last}",
            first = out(ymm_reg) first,
            last = out(ymm_reg) last,
            w0 = in(ymm_reg) w[0],
            w1 = in(ymm_reg) w[1],
            x = in(reg) x,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    [first, last]
}

/// `sums` plus the same.
///
/// # Safety
/// As for `byte_products`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_byte_products(sums: [__m256i; 2], w: [__m256i; 2], x: *const i8) -> [__m256i; 2] {
    let [mut first, mut last] = sums;
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!(
            "vpbroadcastd {b}, dword ptr [{x}]",
            "vpmaddubsw {a}, {w0}, {b}",
            "vpmaddubsw {b}, {w1}, {b}",
            "vpaddw {first}, {first}, {a}",
            "vpaddw {last}, {last}, {b}",
            first = inout(ymm_reg) first,
            last = inout(ymm_reg) last,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            w0 = in(ymm_reg) w[0],
            w1 = in(ymm_reg) w[1],
            x = in(reg) x,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    [first, last]
}

/// The exact products of a block with a row's integers.
///
/// # Safety
/// `block` is one in this type's layout; the processor has the instructions.
#[inline(always)]
unsafe fn dots<W: Unpack>(block: *const u8, x: &SplitBlock, sums: &HalfSums) -> __m512i {
    // In turn: each waits for the one four before it, and what waits long fills the processor's queues. Columns 8C.. of
    // the first half and of the last.
    macro_rules! fours {
        ($dots:ident, $first:ident, $last:ident, $c:literal, $i:literal) => {
            $dots[0][0] = add_bytes_at::<{ HIGH + 8 * $c + 4 * $i }>($dots[0][0], $first[$i], x);
            $dots[0][1] = add_bytes_at::<{ LOW + 8 * $c + 4 * $i }>($dots[0][1], $first[$i], x);
            $dots[1][0] =
                add_bytes_at::<{ HIGH + 16 + 8 * $c + 4 * $i }>($dots[1][0], $last[$i], x);
            $dots[1][1] = add_bytes_at::<{ LOW + 16 + 8 * $c + 4 * $i }>($dots[1][1], $last[$i], x);
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots = [[_mm512_setzero_si512(); 2]; 2];
        let first = W::bytes::<Sixteen, 0>(block);
        let second = W::bytes::<Sixteen, 1>(block);
        let third = W::bytes::<Sixteen, 2>(block);
        fours!(dots, first, third, 0, 0);
        fours!(dots, first, third, 0, 1);
        let fourth = W::bytes::<Sixteen, 3>(block);
        fours!(dots, second, fourth, 1, 0);
        fours!(dots, second, fourth, 1, 1);
        let [first, last] = dots;
        finished::<W, Sixteen>(block, first, last, sums)
    }
}

/// The same for 16 columns, of two chunks of nibbles.
///
/// # Safety
/// The chunks are there; the processor has the instructions.
#[inline(always)]
unsafe fn nibble_dots(chunks: *const u8, x: &SplitBlock) -> __m512i {
    macro_rules! four {
        ($dots:ident, $w:expr, $column:literal) => {
            $dots[0] = add_bytes_at::<{ HIGH + $column }>($dots[0], $w, x);
            $dots[1] = add_bytes_at::<{ LOW + $column }>($dots[1], $w, x);
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots = [_mm512_setzero_si512(); 2];
        let first = nibble_pair::<Sixteen>(chunks, 0);
        four!(dots, first[0], 0);
        four!(dots, first[1], 4);
        let last = nibble_pair::<Sixteen>(chunks, 1);
        four!(dots, last[0], 8);
        four!(dots, last[1], 12);
        whole::<Sixteen>(dots)
    }
}

const HIGH: usize = std::mem::offset_of!(SplitBlock, high);
const LOW: usize = std::mem::offset_of!(SplitBlock, low);

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

impl Step<'_> {
    #[inline(always)]
    fn factors(&self) -> Factors {
        Factors {
            scale: self.x.scale,
            sum: self.x.sum,
        }
    }
}

/// A row's sums in all the registers that a panel takes.
trait OneRow {
    /// # Safety
    /// The processor has the instructions (so for all).
    unsafe fn new() -> Self;

    /// Starts a group whose 16 offsets take the sums `x`.
    ///
    /// # Safety
    /// The weights are there in this type's layout (so for all).
    unsafe fn start_group<W: Unpack>(&mut self, group: *const u8, x: &SplitBlock);

    /// Adds a block's products.
    ///
    /// # Safety
    /// As for `start_group`.
    unsafe fn add<W: Unpack>(&mut self, step: Step<'_>);

    /// # Safety
    /// As for `start_group`.
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, x: &SplitBlock);

    fn lanes(self) -> [f32; PANEL];
}

impl OneRow for (Sums<Eight<0>>, Sums<Eight<1>>) {
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: the caller's promise.
        unsafe { (Sums::new(), Sums::new()) }
    }

    #[inline(always)]
    unsafe fn start_group<W: Unpack>(&mut self, group: *const u8, x: &SplitBlock) {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, last] = dots_of_nibbles(group.add(W::NIBBLES_OF_OFFSETS), x);
            self.0.start_group(first);
            self.1.start_group(last);
        }
    }

    #[inline(always)]
    unsafe fn add<W: Unpack>(&mut self, step: Step<'_>) {
        let Step { group, block, .. } = step;
        // SAFETY: the caller's promise.
        unsafe {
            let [first, last] = dots_of_both::<W>(block, step.x, step.half_sums);
            self.0.add::<W>(first, group, block, step.factors());
            self.1.add::<W>(last, group, block, step.factors());
        }
    }

    #[inline(always)]
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, x: &SplitBlock) {
        // SAFETY: the caller's promise.
        unsafe {
            self.0.end_group::<W>(group, W::BYTES.times, x.scale);
            self.1.end_group::<W>(group, W::BYTES.times, x.scale);
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
    unsafe fn start_group<W: Unpack>(&mut self, group: *const u8, x: &SplitBlock) {
        // SAFETY: the caller's promise.
        unsafe { self.start_group(nibble_dots(group.add(W::NIBBLES_OF_OFFSETS), x)) };
    }

    #[inline(always)]
    unsafe fn add<W: Unpack>(&mut self, step: Step<'_>) {
        let Step { group, block, .. } = step;
        // SAFETY: the caller's promise.
        unsafe {
            let dots = dots::<W>(block, step.x, step.half_sums);
            self.add::<W>(dots, group, block, step.factors());
        }
    }

    #[inline(always)]
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, x: &SplitBlock) {
        // SAFETY: the caller's promise.
        unsafe { self.end_group::<W>(group, W::BYTES.times, x.scale) };
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
            let mut sums_of_group = x.groups.base().cast::<SplitBlock>();
            let mut x = x.blocks.base().cast::<SplitBlock>();
            for group in linear.weights.panel(panel).chunks_exact(W::GROUP_BYTES) {
                let group = group.as_ptr();
                if W::OFFSETS == 16 {
                    sums.start_group::<W>(group, &*sums_of_group);
                }
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
                sums.end_group::<W>(group, &*sums_of_group);
                sums_of_group = sums_of_group.add(1);
            }
            linear.store(panel * PANEL, 0, &sums.lanes());
        }
    }
}

/// A block's products from those of its halves. No closures here: they would not be compiled for the caller's instructions.
#[inline(always)]
unsafe fn finished<W: Unpack, R: Register>(
    block: *const u8,
    first: Dots<R>,
    last: Dots<R>,
    sums: &HalfSums,
) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe {
        if !W::SUB_SCALED {
            let dot = both_halves::<R>(first, last);
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
unsafe fn both_halves<R: Register>(first: Dots<R>, last: Dots<R>) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe { whole::<R>([R::plus(first[0], last[0]), R::plus(first[1], last[1])]) }
}

#[inline(always)]
unsafe fn whole<R: Register>([high, low]: Dots<R>) -> R::Integers {
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
