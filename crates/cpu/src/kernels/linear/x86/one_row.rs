//! One row: its integers are split into two bytes, once for all panels, and multiplied with weights that stay bytes. Half
//! as many steps of unpacking as for 16 bits, and the same exact sums.

use super::pieces::nibble_pair;
use super::registers::{Eight, Register, Sixteen};
use super::split_row::{Parts, SplitRow, SplitSums};
use super::sums::{Factors, Sums};
use super::unpack::Unpack;
use super::vnni;
use super::{avx_vnni, both_halves};
use crate::kernels::activations::{QuantizedBlock, QuantizedRows};
use crate::kernels::linear::Linear;
use crate::pack::{BLOCK, PANEL};
use std::arch::x86_64::*;
use std::ops::Range;

/// Bytes that are asked for ahead on AVX2. From 1 to 4 KB decode differs by less than one run from the next.
pub const AVX2_AHEAD: usize = 2048;

/// How weights are asked for ahead of their use.
trait Asking {
    /// Bytes ahead, of all panels that are read at a time; none are asked for if it is zero.
    const AHEAD: usize;
    /// Whether they come through all caches.
    const KEEPS: bool = false;
}

/// Zen 4 reads ahead by itself, and slower when asked.
struct Nothing;

impl Asking for Nothing {
    const AHEAD: usize = 0;
}

/// Processors that have AVX2 alone follow a stream less far than memory needs.
struct Past;

impl Asking for Past {
    const AHEAD: usize = AVX2_AHEAD;
}

/// So do those with a large first-level cache, where memory is farther still, and nothing is gained past the caches: 0.5B decodes 77
/// instead of 53 tok/s in Q4_K_M, 53 instead of 43 in Q8_0 on two cores of an Emerald Rapids (best of 3 in turn); 2 KB ahead and past
/// them 55. On two of a Zen 5 195 instead of 149 in Q4_K_M; 2 KB ahead 171, 9 to 12 KB like 6.
/// With AVX-VNNI too (SmolLM2 on the Zen 5: 441 tok/s, 380 with 2 KB), which is Intel's or that.
struct Through;

impl Asking for Through {
    const AHEAD: usize = 6144;
    const KEEPS: bool = true;
}

/// Products with the high bytes and with the low ones, added up for each row.
pub type Dots<R> = [<R as Register>::Integers; 2];

/// The exact products of a block with a row's integers.
///
/// # Safety
/// `block` is one in this type's layout; the processor has the instructions.
#[inline(always)]
unsafe fn dots<W: Unpack>(block: *const u8, parts: Parts, b: usize) -> __m512i {
    let x = parts.blocks.wrapping_add(b).cast::<u8>();
    // In turn: each waits for the one four before it, and what waits long fills the processor's queues. Columns 8C.. of
    // the first half and of the last.
    macro_rules! fours {
        ($dots:ident, $first:ident, $last:ident, $c:literal, $i:literal) => {
            $dots[0][0] = add_bytes_at::<{ 8 * $c + 4 * $i }>($dots[0][0], $first[$i], x);
            $dots[0][1] = add_bytes_at::<{ BLOCK + 8 * $c + 4 * $i }>($dots[0][1], $first[$i], x);
            $dots[1][0] = add_bytes_at::<{ 16 + 8 * $c + 4 * $i }>($dots[1][0], $last[$i], x);
            $dots[1][1] =
                add_bytes_at::<{ BLOCK + 16 + 8 * $c + 4 * $i }>($dots[1][1], $last[$i], x);
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        let mut dots = start::<W, Sixteen>(parts, b);
        let first = W::bytes::<Sixteen, 0>(block);
        let second = W::bytes::<Sixteen, 1>(block);
        let third = W::bytes::<Sixteen, 2>(block);
        fours!(dots, first, third, 0, 0);
        fours!(dots, first, third, 0, 1);
        let fourth = W::bytes::<Sixteen, 3>(block);
        fours!(dots, second, fourth, 1, 0);
        fours!(dots, second, fourth, 1, 1);
        finished::<W, Sixteen>(block, dots.into(), parts, b)
    }
}

/// The same for 16 columns, of two chunks of nibbles.
///
/// # Safety
/// The chunks are there; the processor has the instructions.
#[inline(always)]
unsafe fn nibble_dots(chunks: *const u8, x: *const SplitSums) -> __m512i {
    let x = x.cast::<u8>();
    macro_rules! four {
        ($dots:ident, $w:expr, $column:literal) => {
            $dots[0] = add_bytes_at::<{ $column }>($dots[0], $w, x);
            $dots[1] = add_bytes_at::<{ 16 + $column }>($dots[1], $w, x);
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

vnni! {
    /// 16 times four weights, and four bytes.
    add_bytes_at: "vpdpbusd", "1to16", zmm_reg, __m512i, u8
}

/// # Safety
/// As for `Linear::run`, with one row; the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn avx2<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    split: &SplitRow,
    panels: Range<usize>,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Halves<false>, Past>(linear, x, split, panels) }
}

/// # Safety
/// As for `avx2`, and the processor has AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub unsafe fn avx_vnni<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    split: &SplitRow,
    panels: Range<usize>,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Halves<true>, Through>(linear, x, split, panels) }
}

/// # Safety
/// As for `Linear::run`, with one row; the processor has what `Isa::Avx512` stands for.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    split: &SplitRow,
    panels: Range<usize>,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Sums<Sixteen>, Nothing>(linear, x, split, panels) }
}

/// # Safety
/// As for `avx512`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512_asking<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    split: &SplitRow,
    panels: Range<usize>,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Sums<Sixteen>, Through>(linear, x, split, panels) }
}

#[derive(Clone, Copy)]
struct Row {
    split: Parts,
    /// The row as it was before it was split.
    whole: *const QuantizedBlock,
}

/// A block of the row, and where the weights that it is multiplied with lie.
#[derive(Clone, Copy)]
struct Step {
    group: *const u8,
    block: *const u8,
    row: Row,
    b: usize,
}

impl Step {
    /// # Safety
    /// The block is there.
    #[inline(always)]
    unsafe fn factors(&self) -> Factors {
        // SAFETY: the caller's promise.
        unsafe {
            Factors {
                scale: *self.row.split.scales.add(self.b),
                sum: *self.row.split.sums.add(self.b),
            }
        }
    }
}

/// A row's sums in all the registers that a panel takes.
trait OneRow: Copy {
    /// # Safety
    /// The processor has the instructions (so for all).
    unsafe fn new() -> Self;

    /// Starts a group whose 16 offsets take the sums `x`.
    ///
    /// # Safety
    /// The weights are there in this type's layout (so for all).
    unsafe fn start_group<W: Unpack>(&mut self, group: *const u8, x: *const SplitSums);

    /// Adds a block's products.
    ///
    /// # Safety
    /// As for `start_group`.
    unsafe fn add<W: Unpack>(&mut self, step: Step);

    /// # Safety
    /// As for `start_group`.
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, sums_scale: f32);

    fn lanes(self) -> [f32; PANEL];
}

/// Those of AVX2; `FUSED` if the processor has AVX-VNNI.
#[derive(Clone, Copy)]
struct Halves<const FUSED: bool>(Sums<Eight<0>>, Sums<Eight<1>>);

impl<const FUSED: bool> OneRow for Halves<FUSED> {
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Halves(Sums::new(), Sums::new()) }
    }

    #[inline(always)]
    unsafe fn start_group<W: Unpack>(&mut self, group: *const u8, x: *const SplitSums) {
        // SAFETY: the caller's promise.
        unsafe {
            let chunks = group.add(W::NIBBLES_OF_OFFSETS);
            let [first, last] = match FUSED {
                true => avx_vnni::dots_of_nibbles(chunks, x),
                false => both_halves::dots_of_nibbles(chunks, x),
            };
            self.0.start_group(first);
            self.1.start_group(last);
        }
    }

    #[inline(always)]
    unsafe fn add<W: Unpack>(&mut self, step: Step) {
        let Step { group, block, .. } = step;
        // SAFETY: the caller's promise.
        unsafe {
            let Row { split, whole } = step.row;
            let [first, last] = if FUSED {
                avx_vnni::dots_of_both::<W>(block, split, step.b)
            } else if W::BYTES.bits > 6 {
                let integers = (*whole.add(step.b)).integers.as_ptr();
                both_halves::dots_of_words::<W>(block, integers, split, step.b)
            } else {
                both_halves::dots_of_both::<W>(block, split, step.b)
            };
            self.0.add::<W>(first, group, block, step.factors());
            self.1.add::<W>(last, group, block, step.factors());
        }
    }

    #[inline(always)]
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, sums_scale: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            self.0.end_group::<W>(group, W::BYTES.times, sums_scale);
            self.1.end_group::<W>(group, W::BYTES.times, sums_scale);
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
    unsafe fn start_group<W: Unpack>(&mut self, group: *const u8, x: *const SplitSums) {
        // SAFETY: the caller's promise.
        unsafe { self.start_group(nibble_dots(group.add(W::NIBBLES_OF_OFFSETS), x)) };
    }

    #[inline(always)]
    unsafe fn add<W: Unpack>(&mut self, step: Step) {
        let Step { group, block, .. } = step;
        // SAFETY: the caller's promise.
        unsafe {
            let dots = dots::<W>(block, step.row.split, step.b);
            self.add::<W>(dots, group, block, step.factors());
        }
    }

    #[inline(always)]
    unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, sums_scale: f32) {
        // SAFETY: the caller's promise.
        unsafe { self.end_group::<W>(group, W::BYTES.times, sums_scale) };
    }

    #[inline(always)]
    fn lanes(self) -> [f32; PANEL] {
        // SAFETY: any bits are floats, and these are as many.
        unsafe { std::mem::transmute(self.all()) }
    }
}

#[inline(always)]
unsafe fn all<W: Unpack, S: OneRow, A: Asking>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    split: &SplitRow,
    panels: Range<usize>,
) {
    let columns = linear.weights.columns;
    assert!(linear.rows == 1 && columns <= split.columns());
    let groups = columns / BLOCK / W::GROUP_BLOCKS;
    assert!(W::OFFSETS < 16 || split.groups() >= groups, "no sums");
    // SAFETY: the caller's promise.
    let whole = unsafe { x.row(0, columns) }.as_ptr();
    let row = Row {
        split: split.parts(),
        whole,
    };
    // Weights of a byte come faster from two places, each of which is read from end to end.
    let each = match A::AHEAD > 0 && W::BLOCK_BYTES >= BLOCK * PANEL {
        true => panels.len() / 2,
        false => 0,
    };
    let second = panels.start + each;
    // SAFETY: the caller's promise.
    unsafe {
        for panel in panels.start..second {
            add_all::<W, S, A, 2>(linear, row, [panel, panel + each]);
        }
        for panel in second + each..panels.end {
            add_all::<W, S, A, 1>(linear, row, [panel]);
        }
    }
}

/// Whole panels, their groups in turn.
///
/// # Safety
/// The panels are in this type's layout, and the row has as many blocks as a panel; the processor has the instructions.
#[inline(always)]
unsafe fn add_all<W: Unpack, S: OneRow, A: Asking, const N: usize>(
    linear: &Linear<'_>,
    row: Row,
    panels: [usize; N],
) {
    let groups = linear.weights.columns / BLOCK / W::GROUP_BLOCKS;
    let starts = panels.map(|panel| linear.weights.panel(panel).as_ptr());
    // SAFETY: the caller's promise.
    unsafe {
        let mut all_sums = [S::new(); N];
        for g in 0..groups {
            for (start, sums) in starts.iter().zip(&mut all_sums) {
                let group = start.add(g * W::GROUP_BYTES);
                if W::OFFSETS == 16 {
                    sums.start_group::<W>(group, row.split.groups.add(g));
                }
                for j in 0..W::GROUP_BLOCKS {
                    let block = group.add(W::HEADER + j * W::BLOCK_BYTES);
                    // May lie behind the last panel.
                    let ahead = block.wrapping_add(A::AHEAD / N);
                    match (A::AHEAD, A::KEEPS) {
                        (0, _) => {}
                        (_, false) => ask_for::<W, _MM_HINT_NTA>(ahead),
                        (_, true) => ask_for::<W, _MM_HINT_T0>(ahead),
                    }
                    sums.add::<W>(Step {
                        group,
                        block,
                        row,
                        b: g * W::GROUP_BLOCKS + j,
                    });
                }
                let sums_scale = match W::OFFSETS {
                    16 => *row.split.group_scales.add(g),
                    _ => 0.0,
                };
                sums.end_group::<W>(group, sums_scale);
            }
        }
        for (panel, sums) in panels.into_iter().zip(all_sums) {
            linear.store(panel * PANEL, 0, &sums.lanes());
        }
    }
}

/// Asks for a block, line by line with the blocks that are computed: a whole group's lines at once are more than may be under
/// way. Weights are read once a token, so they need not stay: `HINT` says by which caches they come.
#[inline(always)]
pub fn ask_for<W: Unpack, const HINT: i32>(block: *const u8) {
    for line in (0..W::GROUP_BYTES.div_ceil(W::GROUP_BLOCKS)).step_by(64) {
        // SAFETY: a prefetch does not fault; every processor with these kernels has it.
        unsafe { _mm_prefetch::<HINT>(block.wrapping_add(line).cast()) };
    }
}

/// A block's products from those of its halves. No closures here: they would not be compiled for the caller's instructions.
///
/// # Safety
/// The weights are there in this type's layout, and block `b` of the row; the processor has the instructions (so for all
/// below).
#[inline(always)]
pub unsafe fn finished<W: Unpack, R: Register>(
    block: *const u8,
    (first, last): (Dots<R>, Dots<R>),
    x: Parts,
    b: usize,
) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe {
        if !W::SUB_SCALED {
            return less::<W, R>(added::<R>(first, last), x.less_of_all.add(b));
        }
        let sums = x.less_of_halves.add(b).cast::<i32>();
        let halves = [less::<W, R>(first, sums), less::<W, R>(last, sums.add(1))];
        scaled::<W, R>(block, halves)
    }
}

/// The halves of a block's products, sub-scales multiplied in.
///
/// # Safety
/// As for `finished`.
#[inline(always)]
pub unsafe fn scaled<W: Unpack, R: Register>(
    block: *const u8,
    halves: [R::Integers; 2],
) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe {
        R::plus(
            R::times(halves[0], W::sub_scale::<R>(block, 0)),
            R::times(halves[1], W::sub_scale::<R>(block, 1)),
        )
    }
}

/// # Safety
/// As for `finished`.
#[inline(always)]
pub unsafe fn added<R: Register>(first: Dots<R>, last: Dots<R>) -> Dots<R> {
    // SAFETY: the caller's promise.
    unsafe { [R::plus(first[0], last[0]), R::plus(first[1], last[1])] }
}

/// # Safety
/// As for `finished`.
#[inline(always)]
pub unsafe fn whole<R: Register>([high, low]: Dots<R>) -> R::Integers {
    // SAFETY: the caller's promise.
    unsafe { R::plus(R::integers_left::<7>(high), low) }
}

/// What products of both halves start with: nothing, or what values are too high by.
///
/// # Safety
/// As for `finished`.
#[inline(always)]
pub unsafe fn start<W: Unpack, R: Register>(x: Parts, b: usize) -> [Dots<R>; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let none = R::zero();
        match (W::BYTES.less, W::SUB_SCALED) {
            (4, true) => {
                let sums = x.less_of_halves.add(b).cast::<i32>();
                [
                    [none, R::of_integers(*sums)],
                    [none, R::of_integers(*sums.add(1))],
                ]
            }
            // Of high bytes, which count 128 times.
            (128, false) => [[R::of_integers(*x.less_of_all.add(b)), none], [none; 2]],
            _ => [[none; 2]; 2],
        }
    }
}

/// All products, without what values are too high by if they did not start with that: it is added between two shifts, straight
/// from memory.
#[inline(always)]
unsafe fn less<W: Unpack, R: Register>(dots: Dots<R>, sum: *const i32) -> R::Integers {
    macro_rules! less {
        ($first:literal, $then:literal) => {{
            let high = R::plus(R::integers_left::<$first>(dots[0]), R::of_integers(*sum));
            R::plus(R::integers_left::<$then>(high), dots[1])
        }};
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (W::BYTES.less, W::SUB_SCALED) {
            (0, _) | (4, true) | (128, false) => whole::<R>(dots),
            (8, false) => less!(4, 3),
            (16, false) => less!(3, 4),
            (32, true) => less!(4, 3),
            (less, _) => unreachable!("{less} is taken away from no type's values"),
        }
    }
}
