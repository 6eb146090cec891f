//! The one tile of quantized products: half a panel by up to four rows, or a whole one by a row alone, so that it is read
//! in one go.

use super::dot::Dot;
use super::pieces::floats;
use super::unpack::Unpack;
use super::wide::HALF;
use crate::kernels::activations::{QuantizedBlock, QuantizedRows};
use crate::pack::{BLOCK, PANEL};
use std::arch::aarch64::*;
use std::ops::Range;

/// Adds the products of `HALVES` halves of a panel, from row `r` of it on, in `groups` that start at block `first` of a row's
/// `blocks`, with all of `rows` to their sums. A last single row takes `S`.
///
/// # Safety
/// Rows have the blocks and nobody writes them, `sums` has a place for each, and the processor has the instructions.
#[inline(always)]
pub unsafe fn all_tiles<W: Unpack, D: Dot, S: Dot, const HALVES: usize>(
    groups: &[u8],
    r: usize,
    x: &QuantizedRows,
    rows: Range<usize>,
    first: usize,
    blocks: usize,
    sums: *mut [f32; PANEL],
) {
    let mut row = rows.start;
    // SAFETY: the caller's promise; tiles stay inside `rows`.
    unsafe {
        macro_rules! tile {
            ($dot:ident, $m:literal) => {
                let mut inputs = [std::ptr::null(); $m];
                let mut sums_of_groups = [std::ptr::null(); $m];
                for m in 0..$m {
                    inputs[m] = x.row(row + m, blocks * BLOCK).as_ptr().add(first);
                    if W::OFFSETS == 16 {
                        let sums = x.sums_for(W::OFFSETS, row + m, blocks * BLOCK);
                        sums_of_groups[m] = sums[first / W::GROUP_BLOCKS..].as_ptr();
                    }
                }
                let inputs = Inputs {
                    rows: &inputs,
                    sums_of_groups: &sums_of_groups,
                };
                tile::<W, $dot, $m, HALVES>(groups, r, inputs, sums.add(row - rows.start));
                row += $m;
            };
        }
        while D::ROWS == 4 && row + 4 <= rows.end {
            tile!(D, 4);
        }
        while row + 2 <= rows.end {
            tile!(D, 2);
        }
        while row < rows.end {
            tile!(S, 1);
        }
    }
}

/// The rows of a tile: their blocks, and the sums that 16 offsets a group take, from the first group on.
struct Inputs<'a, const M: usize> {
    rows: &'a [*const QuantizedBlock; M],
    sums_of_groups: &'a [*const QuantizedBlock; M],
}

/// # Safety
/// As for `all_tiles`.
#[inline(always)]
unsafe fn tile<W: Unpack, D: Dot, const M: usize, const HALVES: usize>(
    groups: &[u8],
    r: usize,
    inputs: Inputs<'_, M>,
    sums: *mut [f32; PANEL],
) {
    let rows = inputs.rows;
    // SAFETY: `group` is a whole group in the layout of `W`, and rows have a block for each of its blocks.
    unsafe {
        let sums = sums.cast::<f32>().add(r);
        let mut totals = [[[vdupq_n_f32(0.0); 2]; HALVES]; M];
        for m in 0..M {
            for h in 0..HALVES {
                totals[m][h] = floats(sums.add(PANEL * m), HALF * h);
            }
        }
        let mut b = 0;
        for (g, group) in groups.chunks_exact(W::GROUP_BYTES).enumerate() {
            // Of types whose groups are scaled.
            let mut products_of_group = [[[vdupq_n_f32(0.0); 2]; HALVES]; M];
            for j in 0..W::GROUP_BLOCKS {
                let block = group.as_ptr().add(W::HEADER + j * W::BLOCK_BYTES);
                for h in 0..HALVES {
                    let r = r + HALF * h;
                    let dots = products::<W, D, M>(block, r, rows, b);
                    if W::SCALES_GROUPS {
                        for m in 0..M {
                            let x = &*rows[m].add(b);
                            for i in 0..2 {
                                let products = &mut products_of_group[m][h][i];
                                *products =
                                    vfmaq_n_f32(*products, vcvtq_f32_s32(dots[m][i]), x.scale);
                            }
                        }
                        continue;
                    }
                    let scale = W::scales(group.as_ptr(), block, r);
                    let offset = match W::OFFSETS {
                        0 => [vdupq_n_f32(0.0); 2],
                        _ => W::offsets(group.as_ptr(), block, r),
                    };
                    for m in 0..M {
                        // The block's scale, and the sum that offsets take.
                        let x = vld1_f32(&raw const (*rows[m].add(b)).scale);
                        for i in 0..2 {
                            let dot = vcvtq_f32_s32(dots[m][i]);
                            let scale = vmulq_lane_f32::<0>(scale[i], x);
                            let mut total = vfmaq_f32(totals[m][h][i], dot, scale);
                            if W::OFFSETS > 0 {
                                total = vfmaq_lane_f32::<1>(total, offset[i], x);
                            }
                            totals[m][h][i] = total;
                        }
                    }
                }
                b += 1;
            }
            for h in 0..HALVES {
                let r = r + HALF * h;
                if W::SCALES_GROUPS {
                    let first = group.as_ptr().add(W::HEADER);
                    let scales = W::scales(group.as_ptr(), first, r);
                    for m in 0..M {
                        for i in 0..2 {
                            let products = products_of_group[m][h][i];
                            totals[m][h][i] = vfmaq_f32(totals[m][h][i], products, scales[i]);
                        }
                    }
                }
                if W::OFFSETS == 16 {
                    let units = W::offset_units(group.as_ptr(), r);
                    for m in 0..M {
                        let x = inputs.sums_of_groups[m].add(g);
                        let dots = offsets::<W, D>(group.as_ptr(), r, x);
                        for i in 0..2 {
                            let units = vmulq_n_f32(units[i], (*x).scale);
                            let dots = vcvtq_f32_s32(dots[i]);
                            totals[m][h][i] = vfmaq_f32(totals[m][h][i], dots, units);
                        }
                    }
                }
            }
        }
        for m in 0..M {
            for h in 0..HALVES {
                for i in 0..2 {
                    vst1q_f32(sums.add(PANEL * m + HALF * h + 4 * i), totals[m][h][i]);
                }
            }
        }
    }
}

/// The exact products of a group's 16 offsets with the sums of its columns.
///
/// # Safety
/// As for `all_tiles`.
#[inline(always)]
unsafe fn offsets<W: Unpack, D: Dot>(
    group: *const u8,
    r: usize,
    x: *const QuantizedBlock,
) -> [int32x4_t; 2] {
    // SAFETY: the caller's promise; registers may be all zeros.
    unsafe {
        let mut sums: D::Sums = std::mem::zeroed();
        let integers = (&raw const (*x).integers).cast::<i8>();
        for c in 0..2 {
            let w = W::arranged_offsets::<D>(group, c, r);
            D::add(&mut sums, &w, vld1q_s8(integers.add(16 * c)));
        }
        D::total(&sums)
    }
}

/// The exact products of one block of weights with block `b` of each row.
///
/// # Safety
/// As for `all_tiles`.
#[inline(always)]
unsafe fn products<W: Unpack, D: Dot, const M: usize>(
    block: *const u8,
    r: usize,
    rows: &[*const QuantizedBlock; M],
    b: usize,
) -> [[int32x4_t; 2]; M] {
    // SAFETY: the caller's promise; registers may be all zeros.
    unsafe {
        let mut dots = [[vdupq_n_s32(0); 2]; M];
        let zero: D::Sums = std::mem::zeroed();
        let mut sums = [zero; M];
        for half in 0..2 {
            for c in [2 * half, 2 * half + 1] {
                let w = W::arranged::<D>(block, c, r);
                for m in 0..M {
                    let integers = (&raw const (*rows[m].add(b)).integers).cast::<i8>();
                    D::add(&mut sums[m], &w, vld1q_s8(integers.add(16 * c)));
                }
            }
            if W::HAS_SUB_SCALES {
                let scales = W::sub_scales(block, half, r);
                for m in 0..M {
                    let total = D::total(&sums[m]);
                    for i in 0..2 {
                        dots[m][i] = vmlaq_s32(dots[m][i], total[i], scales[i]);
                    }
                    sums[m] = zero;
                }
            }
        }
        if !W::HAS_SUB_SCALES {
            for m in 0..M {
                dots[m] = D::total(&sums[m]);
            }
        }
        dots
    }
}
