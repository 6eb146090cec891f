//! Products with dense weights: the lanes of registers are the rows of a panel, so nothing is ever added across lanes.

use super::registers::{Avx2, Avx512, Eight, Panel, Register, Sixteen};
use crate::kernels::linear::Linear;
use crate::memory::Rows;
use crate::pack::layout::F8;
use crate::pack::{BLOCK, PANEL};
use std::arch::x86_64::*;
use std::ops::Range;

/// How one row asks for weights: it reads several panels side by side, in streams that the processor does not follow over
/// their ends.
trait Asking {
    /// Panels that are read side by side.
    const PANELS: usize;
    /// Whether what is asked for comes through all caches.
    const KEEPS: bool;

    /// For so many panels of so many bytes.
    fn ahead(panels: usize, panel_bytes: usize) -> Ahead;
}

#[derive(Clone, Copy)]
struct Ahead {
    bytes: usize,
    /// Bytes to the end of the panel, and what to leave out there: panels that are read already.
    end: usize,
    skip: usize,
}

/// The next panels, or where they are too far away these panels' own columns.
struct NextPanels<const PANELS: usize>;

impl<const PANELS: usize> Asking for NextPanels<PANELS> {
    const PANELS: usize = PANELS;
    const KEEPS: bool = false;

    #[inline(always)]
    fn ahead(panels: usize, panel_bytes: usize) -> Ahead {
        /// A part of a second-level cache.
        const NEAR: usize = 400 << 10;
        /// In one stream: a page, where processors stop.
        const STREAM: usize = 4096;
        Ahead {
            bytes: match panels * panel_bytes <= NEAR {
                true => panels * panel_bytes,
                false => STREAM,
            },
            end: usize::MAX,
            skip: 0,
        }
    }
}

/// Each stream a little ahead, over its end into the next panels: 0.5B in F16 decodes 30.2 instead of 25.6 tok/s on two cores of an
/// Emerald Rapids (best of 3 in turn); eight panels 29.4, 512 bytes ahead 28.8, not over the end 28.9. On two of a Zen 5 73 instead
/// of 54; eight panels 61, two 59, 1 KB ahead 65, 4 KB 61.
struct Streams;

impl Asking for Streams {
    const PANELS: usize = 4;
    const KEEPS: bool = true;

    #[inline(always)]
    fn ahead(panels: usize, panel_bytes: usize) -> Ahead {
        Ahead {
            bytes: 2048,
            end: panel_bytes,
            skip: (panels - 1) * panel_bytes,
        }
    }
}

pub trait DenseElement {
    /// Bytes of the scales that each block of 32 columns starts with, if it does.
    const SCALES: usize = 0;
    /// What products are multiplied with: a power of two.
    const LARGER: f32 = 1.0;
    const BYTES: usize;

    /// One column of a register's rows, from where the columns start.
    ///
    /// # Safety
    /// The columns are there; the processor has the register's instructions.
    unsafe fn load<R: Register>(columns: *const u8, column: usize) -> R::Floats;
}

pub struct F32;
pub struct F16;
pub struct Bf16;

impl DenseElement for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<R: Register>(columns: *const u8, column: usize) -> R::Floats {
        // SAFETY: the caller's promise.
        unsafe { R::load(columns.add(4 * PANEL * column).cast()) }
    }
}

impl DenseElement for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<R: Register>(columns: *const u8, column: usize) -> R::Floats {
        // SAFETY: the caller's promise.
        unsafe { R::halves(columns.add(2 * PANEL * column)) }
    }
}

impl DenseElement for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<R: Register>(columns: *const u8, column: usize) -> R::Floats {
        // SAFETY: the caller's promise.
        unsafe { R::brain_halves(columns.add(2 * PANEL * column)) }
    }
}

impl DenseElement for F8 {
    const SCALES: usize = F8::VALUES;
    const LARGER: f32 = F8::LARGER;
    const BYTES: usize = 1;

    #[inline(always)]
    unsafe fn load<R: Register>(columns: *const u8, column: usize) -> R::Floats {
        // SAFETY: the caller's promise.
        unsafe { R::small_floats(columns.add(PANEL * column)) }
    }
}

trait DensePanel: Panel {
    /// Whether there are registers for the sums of two panels by twelve rows.
    const IS_WIDE: bool;

    /// One column of a panel.
    ///
    /// # Safety
    /// As for `DenseElement::load`.
    unsafe fn column<E: DenseElement>(columns: *const u8, column: usize) -> Self::Floats;
}

impl DensePanel for Avx2 {
    const IS_WIDE: bool = false;

    #[inline(always)]
    unsafe fn column<E: DenseElement>(columns: *const u8, column: usize) -> [__m256; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                E::load::<Eight<0>>(columns, column),
                E::load::<Eight<1>>(columns, column),
            ]
        }
    }
}

impl DensePanel for Avx512 {
    const IS_WIDE: bool = true;

    #[inline(always)]
    unsafe fn column<E: DenseElement>(columns: *const u8, column: usize) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { E::load::<Sixteen>(columns, column) }
    }
}

/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn avx2<E: DenseElement>(linear: &Linear<'_>, x: Rows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { all::<E, Avx2, NextPanels<4>>(linear, x, panels) }
}

/// # Safety
/// As for `Linear::run`, and the processor has what `Isa::Avx512` stands for.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512<E: DenseElement>(linear: &Linear<'_>, x: Rows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { all::<E, Avx512, NextPanels<8>>(linear, x, panels) }
}

/// # Safety
/// As for `avx512`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512_asking<E: DenseElement>(linear: &Linear<'_>, x: Rows, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe { all::<E, Avx512, Streams>(linear, x, panels) }
}

#[inline(always)]
unsafe fn all<E: DenseElement, P: DensePanel, A: Asking>(
    linear: &Linear<'_>,
    x: Rows,
    panels: Range<usize>,
) {
    // A sum is one chain of additions, each waiting for the one before: several chains at once keep the units busy.
    let mut panel = panels.start;
    while panel < panels.end {
        let left = panels.end - panel;
        // More rows than a few read them from a cache.
        let count = match left {
            8.. if A::PANELS == 8 || P::IS_WIDE && linear.rows > 4 => 8,
            4.. => 4,
            2.. => 2,
            _ => 1,
        };
        let mut row = 0;
        // SAFETY: the caller's promise; tiles stay inside `panels` and `linear.rows`.
        unsafe {
            while P::IS_WIDE && row + 12 <= linear.rows {
                pairs::<E, P, A, 12>(linear, x, panel..panel + count, row);
                row += 12;
            }
            while P::IS_WIDE && row + 6 <= linear.rows {
                pairs::<E, P, A, 6>(linear, x, panel..panel + count, row);
                row += 6;
            }
            while row + 4 <= linear.rows {
                for panel in panel..panel + count {
                    tile::<E, P, A, 1, 4>(linear, x, panel, row);
                }
                row += 4;
            }
            for row in row..linear.rows {
                match count {
                    8 => tile::<E, P, A, 8, 1>(linear, x, panel, row),
                    4 => tile::<E, P, A, 4, 1>(linear, x, panel, row),
                    2 => tile::<E, P, A, 2, 1>(linear, x, panel, row),
                    _ => tile::<E, P, A, 1, 1>(linear, x, panel, row),
                }
            }
        }
        panel += count;
    }
}

/// A few panels, two at a time, by `M` rows.
///
/// # Safety
/// As for `tile`.
#[inline(always)]
unsafe fn pairs<E: DenseElement, P: DensePanel, A: Asking, const M: usize>(
    linear: &Linear<'_>,
    x: Rows,
    panels: Range<usize>,
    row: usize,
) {
    let mut panel = panels.start;
    // SAFETY: the caller's promise.
    unsafe {
        while panel + 2 <= panels.end {
            tile::<E, P, A, 2, M>(linear, x, panel, row);
            panel += 2;
        }
        if panel < panels.end {
            tile::<E, P, A, 1, M>(linear, x, panel, row);
        }
    }
}

/// `N` panels by `M` rows.
///
/// # Safety
/// As for `Linear::run`, and the processor has the instructions.
#[inline(always)]
unsafe fn tile<E: DenseElement, P: DensePanel, A: Asking, const N: usize, const M: usize>(
    linear: &Linear<'_>,
    x: Rows,
    panel: usize,
    first: usize,
) {
    let weights = linear.weights;
    // No closures here: they would not be compiled for the caller's instructions.
    let mut panels = [std::ptr::null(); N];
    for n in 0..N {
        panels[n] = weights.panel(panel + n).as_ptr();
    }
    let mut rows = [std::ptr::null(); M];
    for m in 0..M {
        // SAFETY: the caller's promise.
        rows[m] = unsafe { x.row(first + m)[..weights.columns].as_ptr() };
    }
    let mut ahead = A::ahead(N, weights.panel_bytes);
    // SAFETY: a panel has an element of each row for each of its columns, an input row one.
    unsafe {
        let mut sums = [[P::zeros(); N]; M];
        if E::SCALES == 0 {
            add::<E, P, A, N, M>(&mut sums, &panels, &rows, weights.columns, ahead);
        } else {
            // Whole blocks, each multiplied with its scales at the end.
            for _ in 0..weights.columns / BLOCK {
                let mut parts = [[P::zeros(); N]; M];
                let mut columns = panels;
                for n in 0..N {
                    columns[n] = panels[n].add(E::SCALES);
                }
                add::<E, P, A, N, M>(&mut parts, &columns, &rows, BLOCK, ahead);
                ahead.end -= E::SCALES + BLOCK * PANEL * E::BYTES;
                for n in 0..N {
                    let scales = P::load(panels[n].cast());
                    for m in 0..M {
                        sums[m][n] = P::mul_add(parts[m][n], scales, sums[m][n]);
                    }
                    panels[n] = columns[n].add(BLOCK * PANEL * E::BYTES);
                }
                for m in 0..M {
                    rows[m] = rows[m].add(BLOCK);
                }
            }
        }
        for m in 0..M {
            for n in 0..N {
                linear.store((panel + n) * PANEL, first + m, &P::lanes(sums[m][n]));
            }
        }
    }
}

/// Adds the products of so many columns.
///
/// # Safety
/// They are there, and values of the rows; the processor has the instructions.
#[inline(always)]
unsafe fn add<E: DenseElement, P: DensePanel, A: Asking, const N: usize, const M: usize>(
    sums: &mut [[P::Floats; N]; M],
    columns: &[*const u8; N],
    rows: &[*const f32; M],
    count: usize,
    ahead: Ahead,
) {
    // Columns of a cache line, and not so many that the loop gets long.
    let step = match M <= 4 {
        true => (64 / (E::BYTES * PANEL)).clamp(2, 4),
        // Sums take nearly all registers: of two columns some would go to memory.
        false => 1,
    };
    let whole = count / step * step;
    // SAFETY: the caller's promise.
    unsafe {
        for column in (0..whole).step_by(step) {
            let mut offset = column * E::BYTES * PANEL + ahead.bytes;
            if offset >= ahead.end {
                offset += ahead.skip;
            }
            for n in 0..if M == 1 && N > 1 { N } else { 0 } {
                // May lie behind the last panel: it is only asked for.
                let at = columns[n].wrapping_add(offset);
                match A::KEEPS {
                    true => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
                    false => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
                }
            }
            // A column of all panels before the next: what waits for its own sum fills the processor's queues.
            for i in 0..step {
                add_column::<E, P, N, M>(sums, columns, rows, column + i);
            }
        }
        for column in whole..count {
            add_column::<E, P, N, M>(sums, columns, rows, column);
        }
    }
}

/// # Safety
/// As for `add`.
#[inline(always)]
unsafe fn add_column<E: DenseElement, P: DensePanel, const N: usize, const M: usize>(
    sums: &mut [[P::Floats; N]; M],
    columns: &[*const u8; N],
    rows: &[*const f32; M],
    column: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if M > 4 {
            let mut w = [P::zeros(); N];
            for n in 0..N {
                w[n] = P::column::<E>(columns[n], column);
                if E::LARGER != 1.0 {
                    w[n] = P::times(w[n], E::LARGER);
                }
            }
            for m in 0..M {
                let x = *rows[m].add(column);
                for n in 0..N {
                    sums[m][n] = P::mul_add_one(w[n], x, sums[m][n]);
                }
            }
            return;
        }
        let mut x = [0.0; M];
        for m in 0..M {
            x[m] = *rows[m].add(column);
            // The fewer of both are made larger.
            if E::LARGER != 1.0 && M == 1 {
                x[m] *= E::LARGER;
            }
        }
        for n in 0..N {
            let mut w = P::column::<E>(columns[n], column);
            if E::LARGER != 1.0 && M > 1 {
                w = P::times(w, E::LARGER);
            }
            for m in 0..M {
                sums[m][n] = P::mul_add_one(w, x[m], sums[m][n]);
            }
        }
    }
}
