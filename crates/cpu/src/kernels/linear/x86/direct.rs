//! A few rows: each block is widened in registers and multiplied at once, so the weights are read once from memory and
//! written nowhere.

use super::one_row::{AVX2_AHEAD, ask_for};
use super::pieces::nibbles;
use super::registers::{Eight, Register, Sixteen};
use super::sums::{Factors, Sums};
use super::unpack::Unpack;
use super::{add_products, avx_vnni, for_each_eight, pair, vnni};
use crate::kernels::activations::{QuantizedBlock, QuantizedRows};
use crate::kernels::linear::Linear;
use std::arch::x86_64::*;
use std::ops::Range;

/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn avx2<W: Unpack>(linear: &Linear<'_>, x: &QuantizedRows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { halves::<W, false>(linear, x, panels) }
}

/// # Safety
/// The same, and AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub unsafe fn avx_vnni<W: Unpack>(linear: &Linear<'_>, x: &QuantizedRows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { halves::<W, true>(linear, x, panels) }
}

/// # Safety
/// As for `avx2`, and AVX-VNNI if products are `FUSED` with sums.
#[inline(always)]
unsafe fn halves<W: Unpack, const FUSED: bool>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for panel in panels {
            if linear.rows == 1 {
                both_halves::<W, FUSED>(linear, x, panel);
                continue;
            }
            all_rows::<W, Eight<0>, FUSED>(linear, x, panel);
            all_rows::<W, Eight<1>, FUSED>(linear, x, panel);
        }
    }
}

/// # Safety
/// As for `Linear::run`, and the processor has what `Isa::Avx512` stands for.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512<W: Unpack>(linear: &Linear<'_>, x: &QuantizedRows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe {
        for panel in panels {
            all_rows::<W, Sixteen, true>(linear, x, panel);
        }
    }
}

/// `FUSED` if the processor has an instruction that multiplies and adds.
trait Dot<const FUSED: bool>: Register {
    /// Rows of the largest tile: what the registers hold.
    const ROWS: usize;

    /// Adds the products of eight columns with the integers at `x`, for a tile of `M` rows.
    ///
    /// # Safety
    /// The processor has the instructions; eight integers can be read.
    unsafe fn add_products<const M: usize>(
        sums: &mut [Self::Integers; 2],
        w: &[Self::Integers; 4],
        x: *const i16,
    );
}

impl<const HALF: usize, const FUSED: bool> Dot<FUSED> for Eight<HALF> {
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn add_products<const M: usize>(
        sums: &mut [__m256i; 2],
        w: &[__m256i; 4],
        x: *const i16,
    ) {
        for v in 0..4 {
            // Four rows are chains enough, and leave no registers for more.
            let chain = if M < 4 { v % 2 } else { 0 };
            // SAFETY: the caller's promise.
            unsafe {
                let x = pair(x.add(2 * v));
                sums[chain] = match FUSED {
                    true => avx_vnni::add_products(sums[chain], w[v], x),
                    false => add_products(sums[chain], w[v], x),
                };
            }
        }
    }
}

impl Dot<true> for Sixteen {
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn add_products<const M: usize>(
        sums: &mut [__m512i; 2],
        w: &[__m512i; 4],
        x: *const i16,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            sums[0] = add_products_at::<0>(sums[0], w[0], x);
            sums[1] = add_products_at::<4>(sums[1], w[1], x);
            sums[0] = add_products_at::<8>(sums[0], w[2], x);
            sums[1] = add_products_at::<12>(sums[1], w[3], x);
        }
    }
}

vnni! {
    /// 16 pairs of weights.
    add_products_at: "vpdpwssd", "1to16", zmm_reg, __m512i, i16
}

#[inline(always)]
unsafe fn all_rows<W: Unpack, R: Dot<FUSED>, const FUSED: bool>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panel: usize,
) {
    let mut row = 0;
    // SAFETY: the caller's promise; tiles stay below `linear.rows`.
    unsafe {
        while R::ROWS == 8 && row + 8 <= linear.rows {
            tile::<W, R, FUSED, 8>(linear, x, panel, row);
            row += 8;
        }
        while row + 4 <= linear.rows {
            tile::<W, R, FUSED, 4>(linear, x, panel, row);
            row += 4;
        }
        if row + 2 <= linear.rows {
            tile::<W, R, FUSED, 2>(linear, x, panel, row);
            row += 2;
        }
        if row < linear.rows {
            tile::<W, R, FUSED, 1>(linear, x, panel, row);
        }
    }
}

/// A register of one panel by `M` rows.
#[inline(always)]
unsafe fn tile<W: Unpack, R: Dot<FUSED>, const FUSED: bool, const M: usize>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panel: usize,
    first: usize,
) {
    let weights = linear.weights;
    let bytes = weights.panel(panel);
    // SAFETY: the caller's promise.
    let mut rows = [unsafe { x.row(first, weights.columns) }; M];
    // SAFETY: the same.
    let mut sums_of_groups = [unsafe { x.sums_for(W::OFFSETS, first, weights.columns) }; M];
    for m in 1..M {
        // SAFETY: the caller's promise.
        unsafe {
            rows[m] = x.row(first + m, weights.columns);
            sums_of_groups[m] = x.sums_for(W::OFFSETS, first + m, weights.columns);
        }
    }
    // SAFETY: `group` is a whole group of blocks in this type's layout, and rows have as many blocks as the panel.
    unsafe {
        let mut sums = [Sums::<R>::new(); M];
        let mut b = 0;
        // The next panel is asked for in the last pass over this one: what the first pass alone would read, it would wait for.
        let is_last_of_several = R::FIRST > 0 && first + M == linear.rows;
        for (g, group) in bytes.chunks_exact(W::GROUP_BYTES).enumerate() {
            let group = group.as_ptr();
            let scales = start_group::<W, R, FUSED, M>(&mut sums, group, &sums_of_groups, g);
            for j in 0..W::GROUP_BLOCKS {
                let block = group.add(W::HEADER + j * W::BLOCK_BYTES);
                if is_last_of_several {
                    for line in (0..W::GROUP_BYTES / W::GROUP_BLOCKS).step_by(64) {
                        // May lie behind the last panel.
                        let at = block.wrapping_add(weights.panel_bytes + line);
                        _mm_prefetch::<_MM_HINT_T0>(at.cast());
                    }
                }
                add_block::<W, R, FUSED, M>(&mut sums, group, block, &rows, b);
                b += 1;
            }
            for m in 0..M {
                sums[m].end_group::<W>(group, 1, scales[m]);
            }
        }
        for (m, sum) in sums.into_iter().enumerate() {
            R::finish(sum.all(), linear, panel, first + m);
        }
    }
}

/// One row: both halves of a panel's rows in one pass, from end to end. More rows have no registers for it.
///
/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[inline(always)]
unsafe fn both_halves<W: Unpack, const FUSED: bool>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panel: usize,
) {
    // SAFETY: as for `tile`.
    unsafe {
        let rows = [x.row(0, linear.weights.columns)];
        let sums = [x.sums_for(W::OFFSETS, 0, linear.weights.columns)];
        let (mut first, mut last) = ([Sums::<Eight<0>>::new()], [Sums::<Eight<1>>::new()]);
        let mut b = 0;
        let groups = linear.weights.panel(panel).chunks_exact(W::GROUP_BYTES);
        for (g, group) in groups.enumerate() {
            let group = group.as_ptr();
            start_group::<W, _, FUSED, 1>(&mut first, group, &sums, g);
            let [scale] = start_group::<W, _, FUSED, 1>(&mut last, group, &sums, g);
            for j in 0..W::GROUP_BLOCKS {
                let block = group.add(W::HEADER + j * W::BLOCK_BYTES);
                ask_for::<W, _MM_HINT_NTA>(block.wrapping_add(AVX2_AHEAD));
                add_block::<W, _, FUSED, 1>(&mut first, group, block, &rows, b);
                add_block::<W, _, FUSED, 1>(&mut last, group, block, &rows, b);
                b += 1;
            }
            first[0].end_group::<W>(group, 1, scale);
            last[0].end_group::<W>(group, 1, scale);
        }
        Eight::<0>::finish(first[0].all(), linear, panel, 0);
        Eight::<1>::finish(last[0].all(), linear, panel, 0);
    }
}

/// Starts a group in which 16 offsets take block `g` of the rows' sums, and gives the scales of those.
///
/// # Safety
/// The group is there in this type's layout, and the rows have the sums; the processor has the instructions.
#[inline(always)]
unsafe fn start_group<W: Unpack, R: Dot<FUSED>, const FUSED: bool, const M: usize>(
    sums: &mut [Sums<R>; M],
    group: *const u8,
    rows: &[&[QuantizedBlock]; M],
    g: usize,
) -> [f32; M] {
    let mut scales = [0.0; M];
    if W::OFFSETS < 16 {
        return scales;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let chunks = group.add(W::NIBBLES_OF_OFFSETS);
        let w = [nibbles::<R>(chunks, 0), nibbles::<R>(chunks, 1)];
        for m in 0..M {
            let x = &*rows[m].as_ptr().add(g);
            let mut dots = [R::zero(); 2];
            for c in 0..2 {
                R::add_products::<M>(&mut dots, &w[c], x.integers.as_ptr().add(8 * c));
            }
            sums[m].start_group(R::plus(dots[0], dots[1]));
            scales[m] = x.scale;
        }
    }
    scales
}

/// Adds a block's products with block `b` of the rows.
///
/// # Safety
/// The block is there in this type's layout, and the rows have it; the processor has the instructions.
#[inline(always)]
unsafe fn add_block<W: Unpack, R: Dot<FUSED>, const FUSED: bool, const M: usize>(
    sums: &mut [Sums<R>; M],
    group: *const u8,
    block: *const u8,
    rows: &[&[QuantizedBlock]; M],
    b: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Four chains of additions for one row: what waits for long ones fills the processor's queues.
        let mut chains = [[[R::zero(); 2]; 2]; M];
        for_each_eight!(C, {
            let w = W::eight::<R, C>(block);
            let chain = if M == 1 { C % 2 } else { 0 };
            for m in 0..M {
                let x = (*rows[m].as_ptr().add(b)).integers.as_ptr().add(8 * C);
                R::add_products::<M>(&mut chains[m][chain], &w, x);
            }
        });
        let mut dots = [R::zero(); M];
        for m in 0..M {
            dots[m] = R::plus(chains[m][0][0], chains[m][0][1]);
            if M == 1 {
                let others = R::plus(chains[m][1][0], chains[m][1][1]);
                dots[m] = R::plus(dots[m], others);
            }
        }
        for m in 0..M {
            let x = &*rows[m].as_ptr().add(b);
            let factors = Factors {
                scale: x.scale,
                sum: x.sum,
            };
            sums[m].add::<W>(dots[m], group, block, factors);
        }
    }
}
