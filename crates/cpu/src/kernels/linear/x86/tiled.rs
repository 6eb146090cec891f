//! Many rows: two panels are widened into the first-level cache, as much of their columns as fits, and used for a block
//! of rows; sums wait in memory between one such chunk of columns and the next. All types share this kernel.

use super::unpack::{Unpack, both_offsets};
use super::{add_products, for_each_eight, pair, vnni};
use crate::kernels::activations::{QuantizedBlock, QuantizedRows};
use crate::kernels::linear::Linear;
use crate::memory::AlignedBytes;
use crate::pack::{BLOCK, PANEL};
use mettle_plan::BackendError;
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks of two panels that are widened at a time: 18 KB of integers and 3 KB of scales, in a cache of 32 KB.
const CHUNK: usize = 18;

/// Rows that go over one chunk: their activations (295 KB for 1152 columns) stay in the second-level cache.
const ROWS: usize = 128;

/// Registers of 16-bit pairs in a block of one panel.
const STEPS: usize = BLOCK / 2;

/// Columns of the output that are computed together.
const COLUMNS: usize = 2 * PANEL;

/// One thread's widened weights and waiting sums.
pub struct WidePanels {
    /// `[block][step][panel][row][2]`.
    integers: AlignedBytes,
    /// `[block][panel][row]`.
    scales: AlignedBytes,
    offsets: AlignedBytes,
    first_offsets: AlignedBytes,
    /// `[row of the input][panel][row]`.
    sums: AlignedBytes,
}

impl WidePanels {
    pub fn new() -> Result<WidePanels, BackendError> {
        let room = |bytes| AlignedBytes::zeroed("widened weights", bytes);
        Ok(WidePanels {
            integers: room(CHUNK * STEPS * COLUMNS * 4)?,
            scales: room(CHUNK * COLUMNS * 4)?,
            offsets: room(CHUNK * COLUMNS * 4)?,
            first_offsets: room(CHUNK * COLUMNS * 4)?,
            sums: room(ROWS * COLUMNS * 4)?,
        })
    }

    pub fn bytes(&self) -> usize {
        let scales = self.scales.len() + self.offsets.len() + self.first_offsets.len();
        self.integers.len() + scales + self.sums.len()
    }
}

/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn avx2<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanels,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Avx2>(linear, x, panels, room) }
}

/// # Safety
/// As for `Linear::run`, and the processor has what `Isa::Avx512` stands for.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn avx512<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanels,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Avx512>(linear, x, panels, room) }
}

/// How an instruction set computes a tile: the columns of both panels side by side.
trait Tile: Sized {
    /// Rows of the largest tile.
    const ROWS: usize;
    type Integers: Copy;
    type Floats: Copy;

    /// All tiles of some rows. Types that have as many `OFFSETS` share it: it is a call.
    ///
    /// # Safety
    /// As for `Linear::run`, and the processor has the instructions (so for all).
    unsafe fn all<const OFFSETS: usize>(
        linear: &Linear<'_>,
        x: &QuantizedRows,
        pair: [usize; 2],
        rows: Range<usize>,
        blocks: Range<usize>,
        room: &WidePanels,
        ahead: Ahead,
    );

    unsafe fn zero() -> Self::Integers;

    /// A step's pairs of weights.
    ///
    /// # Safety
    /// 64 bytes can be read, at a multiple of 64.
    unsafe fn weights(p: *const u8) -> Self::Integers;

    /// `sum` plus the products with the pair at byte `OFFSET` of a block.
    ///
    /// # Safety
    /// The block exists.
    unsafe fn add_products<const OFFSET: usize>(
        sum: Self::Integers,
        w: Self::Integers,
        x: *const QuantizedBlock,
    ) -> Self::Integers;

    unsafe fn floats(integers: Self::Integers) -> Self::Floats;

    /// # Safety
    /// 16 values can be read, at a multiple of 64.
    unsafe fn load(p: *const f32) -> Self::Floats;

    /// # Safety
    /// 16 values can be written, at a multiple of 64.
    unsafe fn store(values: Self::Floats, p: *mut f32);

    unsafe fn times(values: Self::Floats, by: f32) -> Self::Floats;

    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// The same with one `b` for all columns.
    unsafe fn mul_add_one(a: Self::Floats, b: f32, c: Self::Floats) -> Self::Floats;
}

#[inline(always)]
unsafe fn all<W: Unpack, T: Tile>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanels,
) {
    let blocks = linear.weights.columns / BLOCK;
    let chunks = blocks.div_ceil(CHUNK / W::GROUP_BLOCKS * W::GROUP_BLOCKS);
    let chunk = blocks.div_ceil(chunks).next_multiple_of(W::GROUP_BLOCKS);
    for rows in (0..linear.rows).step_by(ROWS) {
        let rows = rows..linear.rows.min(rows + ROWS);
        for panel in panels.clone().step_by(2) {
            // Where no second panel is left, the first one takes its place too.
            let pair = [panel, (panel + 1).min(panels.end - 1)];
            for first in (0..blocks).step_by(chunk) {
                let count = chunk.min(blocks - first);
                // SAFETY: the caller's promise; a chunk is whole groups within `CHUNK` blocks.
                unsafe {
                    for (p, panel) in pair.into_iter().enumerate() {
                        widen::<W>(linear, panel, p, first, count, room);
                    }
                    let ahead = Ahead::new::<W>(linear, pair, first, count, blocks);
                    let (rows, blocks) = (rows.clone(), first..first + count);
                    match W::OFFSETS {
                        0 => T::all::<0>(linear, x, pair, rows, blocks, room, ahead),
                        1 => T::all::<1>(linear, x, pair, rows, blocks, room, ahead),
                        _ => T::all::<2>(linear, x, pair, rows, blocks, room, ahead),
                    }
                }
            }
        }
    }
}

/// The packed weights that are widened next. They are asked for while these are multiplied: nothing else reads ahead.
#[derive(Clone, Copy)]
struct Ahead {
    panels: [*const u8; 2],
    block_bytes: usize,
}

impl Ahead {
    #[inline(always)]
    fn new<W: Unpack>(
        linear: &Linear<'_>,
        pair: [usize; 2],
        first: usize,
        count: usize,
        blocks: usize,
    ) -> Ahead {
        let block_bytes = W::GROUP_BYTES.div_ceil(W::GROUP_BLOCKS);
        let mut panels = [std::ptr::null(); 2];
        for p in 0..2 {
            let panel = linear.weights.panel(pair[p]);
            let offset = match first + count < blocks {
                true => (first + count) / W::GROUP_BLOCKS * W::GROUP_BYTES,
                false => 2 * panel.len(),
            };
            // May lie behind the last panel: it is only asked for.
            panels[p] = panel.as_ptr().wrapping_add(offset);
        }
        Ahead {
            panels,
            block_bytes,
        }
    }

    /// Asks for block `b` of both panels.
    #[inline(always)]
    fn ask(&self, b: usize) {
        for panel in self.panels {
            for line in (0..self.block_bytes).step_by(64) {
                let at = panel.wrapping_add(b * self.block_bytes + line);
                // SAFETY: a prefetch does not fault; every processor with these kernels has it.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
            }
        }
    }
}

/// Widens `count` blocks of a panel from block `first` on, as panel `p` of the pair.
#[inline(always)]
unsafe fn widen<W: Unpack>(
    linear: &Linear<'_>,
    panel: usize,
    p: usize,
    first: usize,
    count: usize,
    room: &WidePanels,
) {
    let bytes = linear.weights.panel(panel);
    let groups = first / W::GROUP_BLOCKS..(first + count) / W::GROUP_BLOCKS;
    let bytes = &bytes[groups.start * W::GROUP_BYTES..groups.end * W::GROUP_BYTES];
    let mut b = 0;
    // SAFETY: `group` is a whole group in this type's layout, and there is room for `CHUNK` blocks.
    unsafe {
        let integers = room.integers.base().cast::<__m256i>();
        let scales = room.scales.base().cast::<f32>();
        let offsets = room.offsets.base().cast::<f32>();
        let first_offsets = room.first_offsets.base().cast::<f32>();
        for group in bytes.chunks_exact(W::GROUP_BYTES) {
            let group = group.as_ptr();
            for j in 0..W::GROUP_BLOCKS {
                let block = group.add(W::HEADER + j * W::BLOCK_BYTES);
                for_each_eight!(C, {
                    let w = W::eight::<C>(block);
                    for v in 0..4 {
                        _mm256_store_si256(integers.add((b * STEPS + 4 * C + v) * 2 + p), w[v]);
                    }
                });
                let at = b * COLUMNS + p * PANEL;
                let (offset, first) = both_offsets::<W>(group, block);
                _mm256_store_ps(scales.add(at), W::scales(group, block));
                _mm256_store_ps(offsets.add(at), offset);
                _mm256_store_ps(first_offsets.add(at), first);
                b += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn all_tiles<T: Tile, const OFFSETS: usize>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    pair: [usize; 2],
    rows: Range<usize>,
    blocks: Range<usize>,
    room: &WidePanels,
    ahead: Ahead,
) {
    let columns = linear.weights.columns;
    let is_first = blocks.start == 0;
    let is_last = blocks.end * BLOCK == columns;
    let mut row = rows.start;
    let mut ahead = Some(ahead);
    // SAFETY: the caller's promise; tiles stay inside `rows`.
    unsafe {
        let all_sums = room.sums.base().cast::<f32>();
        macro_rules! tile {
            ($m:literal) => {
                let mut inputs = [x.row(row, columns); $m];
                for m in 0..$m {
                    inputs[m] = x.row(row + m, columns);
                }
                let sums = all_sums.add((row - rows.start) * COLUMNS);
                if is_first {
                    *sums.cast() = [0.0_f32; $m * COLUMNS];
                }
                if is_last {
                    for m in 0..$m {
                        ask_for_output(linear, pair[0], row + m);
                    }
                }
                add::<T, OFFSETS, $m>(room, &inputs, blocks.clone(), sums, ahead.take());
                // Right behind each tile: the next one is computed while the memory takes these.
                if is_last {
                    for m in 0..$m {
                        let sums = sums.add(m * COLUMNS).cast::<[f32; PANEL]>();
                        linear.store(pair[0], row + m, &*sums);
                        // A panel that stands in for a second one is stored once: its residual may be the output.
                        if pair[1] != pair[0] {
                            linear.store(pair[1], row + m, &*sums.add(1));
                        }
                    }
                }
                row += $m;
            };
        }
        while T::ROWS == 8 && row + 8 <= rows.end {
            tile!(8);
        }
        while row + 4 <= rows.end {
            tile!(4);
        }
        if row + 2 <= rows.end {
            tile!(2);
        }
        if row < rows.end {
            tile!(1);
        }
        debug_assert_eq!(row, rows.end);
    }
}

/// Asks for what a tile's sums are added to and written to: rows lie far apart, where nothing reads ahead.
#[inline(always)]
fn ask_for_output(linear: &Linear<'_>, panel: usize, row: usize) {
    for rows in [Some(linear.out), linear.residual].into_iter().flatten() {
        let at = rows.address(row, panel * PANEL);
        // SAFETY: a prefetch does not fault; every processor with these kernels has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

/// Unrolled: offsets become part of the instructions, and a pointer a row is all that is needed.
macro_rules! for_each_step {
    ($step:ident, $body:block) => {
        for_each_step!(@ $step, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $step:ident, $body:block, $($number:literal)*) => {
        const _: () = assert!(STEPS == 16);
        $({
            const $step: usize = $number;
            $body
        })*
    };
}

/// Adds the products of the widened blocks with the rows' `blocks` to the rows' sums.
///
/// # Safety
/// The rows have the blocks, `sums` has 16 values for each row, and the processor has the instructions.
#[inline(always)]
unsafe fn add<T: Tile, const OFFSETS: usize, const M: usize>(
    room: &WidePanels,
    rows: &[&[QuantizedBlock]; M],
    blocks: Range<usize>,
    sums: *mut f32,
    ahead: Option<Ahead>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let integers = room.integers.base();
        let scales = room.scales.base().cast::<f32>();
        let offsets = room.offsets.base().cast::<f32>();
        let first_offsets = room.first_offsets.base().cast::<f32>();
        let mut total = [T::load(sums); M];
        for m in 0..M {
            total[m] = T::load(sums.add(m * COLUMNS));
        }
        for b in 0..blocks.len() {
            if let Some(ahead) = ahead {
                ahead.ask(b);
            }
            let mut dots = [T::zero(); M];
            let w = integers.add(b * STEPS * COLUMNS * 4);
            let mut x = [std::ptr::null::<QuantizedBlock>(); M];
            for m in 0..M {
                x[m] = rows[m].as_ptr().add(blocks.start + b);
            }
            for_each_step!(STEP, {
                let w = T::weights(w.add(STEP * COLUMNS * 4));
                for m in 0..M {
                    dots[m] = T::add_products::<{ 4 * STEP }>(dots[m], w, x[m]);
                }
            });
            let scale = T::load(scales.add(b * COLUMNS));
            let offset = T::load(offsets.add(b * COLUMNS));
            for m in 0..M {
                let x = &*x[m];
                total[m] = T::mul_add(T::floats(dots[m]), T::times(scale, x.scale), total[m]);
                if OFFSETS > 0 {
                    total[m] = T::mul_add_one(offset, x.sum, total[m]);
                }
                if OFFSETS == 2 {
                    let first = T::load(first_offsets.add(b * COLUMNS));
                    total[m] = T::mul_add_one(first, x.first_sum, total[m]);
                }
            }
        }
        for m in 0..M {
            T::store(total[m], sums.add(m * COLUMNS));
        }
    }
}

/// The functions of a tile for one instruction set, each the caller's promise handed on.
macro_rules! tile_with {
    (
        $(#[$doc:meta])* $name:ident, $rows:literal rows, $features:literal, $integers:ty, $floats:ty;
        $(fn $f:ident $(<const $n:ident>)?($($arg:ident: $type:ty),*) $(-> $out:ty)? $body:block)*
    ) => {
        $(#[$doc])*
        struct $name;

        impl Tile for $name {
            const ROWS: usize = $rows;
            type Integers = $integers;
            type Floats = $floats;

            #[target_feature(enable = $features)]
            unsafe fn all<const OFFSETS: usize>(
                linear: &Linear<'_>,
                x: &QuantizedRows,
                pair: [usize; 2],
                rows: Range<usize>,
                blocks: Range<usize>,
                room: &WidePanels,
                ahead: Ahead,
            ) {
                // SAFETY: the caller's promise.
                unsafe { all_tiles::<Self, OFFSETS>(linear, x, pair, rows, blocks, room, ahead) }
            }

            $(#[inline(always)]
            unsafe fn $f $(<const $n: usize>)?($($arg: $type),*) $(-> $out)? {
                // SAFETY: the caller's promise.
                unsafe { $body }
            })*
        }
    };
}

tile_with! {
    /// A register for each panel.
    Avx2, 4 rows, "avx2,fma,f16c", [__m256i; 2], [__m256; 2];

    fn zero() -> [__m256i; 2] {
        [_mm256_setzero_si256(); 2]
    }

    fn weights(p: *const u8) -> [__m256i; 2] {
        let p = p.cast::<__m256i>();
        [_mm256_load_si256(p), _mm256_load_si256(p.add(1))]
    }

    fn add_products<const OFFSET>(sum: [__m256i; 2], w: [__m256i; 2], x: *const QuantizedBlock) -> [__m256i; 2] {
        let x = pair(x.byte_add(OFFSET).cast());
        [add_products(sum[0], w[0], x), add_products(sum[1], w[1], x)]
    }

    fn floats(integers: [__m256i; 2]) -> [__m256; 2] {
        [_mm256_cvtepi32_ps(integers[0]), _mm256_cvtepi32_ps(integers[1])]
    }

    fn load(p: *const f32) -> [__m256; 2] {
        [_mm256_load_ps(p), _mm256_load_ps(p.add(PANEL))]
    }

    fn store(values: [__m256; 2], p: *mut f32) {
        _mm256_store_ps(p, values[0]);
        _mm256_store_ps(p.add(PANEL), values[1]);
    }

    fn times(values: [__m256; 2], by: f32) -> [__m256; 2] {
        let by = _mm256_set1_ps(by);
        [_mm256_mul_ps(values[0], by), _mm256_mul_ps(values[1], by)]
    }

    fn mul_add(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
    }

    fn mul_add_one(a: [__m256; 2], b: f32, c: [__m256; 2]) -> [__m256; 2] {
        Self::mul_add(a, [_mm256_set1_ps(b); 2], c)
    }
}

vnni! {
    /// 16 pairs of weights.
    add_products_at: "vpdpwssd", "1to16", zmm_reg, __m512i, QuantizedBlock
}

tile_with! {
    /// A register holds both panels.
    Avx512, 8 rows, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni", __m512i, __m512;

    fn zero() -> __m512i {
        _mm512_setzero_si512()
    }

    fn weights(p: *const u8) -> __m512i {
        _mm512_load_si512(p.cast())
    }

    fn add_products<const OFFSET>(sum: __m512i, w: __m512i, x: *const QuantizedBlock) -> __m512i {
        add_products_at::<OFFSET>(sum, w, x)
    }

    fn floats(integers: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(integers)
    }

    fn load(p: *const f32) -> __m512 {
        _mm512_load_ps(p)
    }

    fn store(values: __m512, p: *mut f32) {
        _mm512_store_ps(p, values);
    }

    fn times(values: __m512, by: f32) -> __m512 {
        _mm512_mul_ps(values, _mm512_set1_ps(by))
    }

    fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }

    fn mul_add_one(a: __m512, b: f32, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, _mm512_set1_ps(b), c)
    }
}
