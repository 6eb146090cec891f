//! Many rows: a panel is widened into the first-level cache, as much of its columns as fits, and used for a block
//! of rows; sums wait in memory between one such chunk of columns and the next. All types share this kernel.

use super::pieces::nibbles;
use super::registers::{Avx2, Avx512, Eight, Panel, Register, Sixteen};
use super::unpack::Unpack;
use super::{add_products, for_each_eight, pair, vnni};
use crate::kernels::activations::{QuantizedBlock, QuantizedRows};
use crate::kernels::linear::Linear;
use crate::memory::AlignedBytes;
use crate::pack::{BLOCK, PANEL};
use mettle_plan::BackendError;
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks of a panel that are widened at a time: 18 KB of integers and 2 KB of scales, in a cache of 32 KB.
const CHUNK: usize = 18;

/// Rows that go over one chunk: their activations (350 KB for 1152 columns) stay in the second-level cache.
const ROWS: usize = 128;

/// Blocks of a group, for all types whose groups are scaled or have offsets.
const GROUP: usize = 256 / BLOCK;

/// Pairs of 16-bit integers in a block of a row.
const STEPS: usize = BLOCK / 2;

/// The same of a group's offsets.
const OFFSET_STEPS: usize = 16 / 2;

/// One such pair of all rows; as large as a float of each.
const STEP_BYTES: usize = 4 * PANEL;

/// One thread's widened weights and waiting sums.
pub struct WidePanel {
    /// `[block][step][row][2]`.
    integers: AlignedBytes,
    /// `[block][row]`.
    scales: AlignedBytes,
    offsets: AlignedBytes,
    /// The 16 offsets of a group: `[group][step][row][2]`, and `[group][row]`.
    offset_integers: AlignedBytes,
    offset_units: AlignedBytes,
    /// `[row of the input][row]`.
    sums: AlignedBytes,
}

impl WidePanel {
    pub fn new() -> Result<WidePanel, BackendError> {
        let room = |bytes| AlignedBytes::zeroed("widened weights", bytes);
        Ok(WidePanel {
            integers: room(CHUNK * STEPS * STEP_BYTES)?,
            scales: room(CHUNK * STEP_BYTES)?,
            offsets: room(CHUNK * STEP_BYTES)?,
            offset_integers: room(CHUNK / GROUP * OFFSET_STEPS * STEP_BYTES)?,
            offset_units: room(CHUNK / GROUP * STEP_BYTES)?,
            sums: room(ROWS * STEP_BYTES)?,
        })
    }

    pub fn bytes(&self) -> usize {
        let of_groups = self.offset_integers.len() + self.offset_units.len();
        let offsets = self.offsets.len() + of_groups;
        self.integers.len() + self.scales.len() + offsets + self.sums.len()
    }
}

/// # Safety
/// As for `Linear::run`, and the processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn avx2<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
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
    room: &mut WidePanel,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, Avx512>(linear, x, panels, room) }
}

/// How an instruction set computes a tile.
trait Tile: Panel {
    /// Rows of the largest tile.
    const ROWS: usize;

    /// All tiles of some rows. Types that have as many `OFFSETS`, and whose groups are scaled or not, share it: it is a call.
    ///
    /// # Safety
    /// As for `Linear::run`, and the processor has the instructions (so for all).
    unsafe fn all<const OFFSETS: usize, const SCALES_GROUPS: bool>(
        linear: &Linear<'_>,
        x: &QuantizedRows,
        panel: usize,
        rows: Range<usize>,
        blocks: Range<usize>,
        room: &WidePanel,
        ahead: Ahead,
    );

    /// Widens whole groups of a panel.
    ///
    /// # Safety
    /// They are in this type's layout, and within `CHUNK` blocks.
    unsafe fn widen<W: Unpack>(groups: &[u8], room: &WidePanel);

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
}

#[inline(always)]
unsafe fn all<W: Unpack, T: Tile>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
) {
    const { assert!(!W::SCALES_GROUPS || W::GROUP_BLOCKS == GROUP) };
    let blocks = linear.weights.columns / BLOCK;
    let chunks = blocks.div_ceil(CHUNK / W::GROUP_BLOCKS * W::GROUP_BLOCKS);
    let chunk = blocks.div_ceil(chunks).next_multiple_of(W::GROUP_BLOCKS);
    for rows in (0..linear.rows).step_by(ROWS) {
        let rows = rows..linear.rows.min(rows + ROWS);
        for panel in panels.clone() {
            for first in (0..blocks).step_by(chunk) {
                let count = chunk.min(blocks - first);
                // SAFETY: the caller's promise; a chunk is whole groups within `CHUNK` blocks.
                unsafe {
                    let packed = linear.weights.panel(panel);
                    let from = first / W::GROUP_BLOCKS * W::GROUP_BYTES;
                    let to = (first + count) / W::GROUP_BLOCKS * W::GROUP_BYTES;
                    T::widen::<W>(&packed[from..to], room);
                    // Behind the end lies the next panel, if there is one: it is only asked for.
                    let ahead = Ahead {
                        next: packed.as_ptr().wrapping_add(to),
                        block_bytes: W::GROUP_BYTES.div_ceil(W::GROUP_BLOCKS),
                    };
                    let (rows, blocks) = (rows.clone(), first..first + count);
                    match (W::OFFSETS, W::SCALES_GROUPS) {
                        (0, false) => {
                            T::all::<0, false>(linear, x, panel, rows, blocks, room, ahead)
                        }
                        (0, true) => T::all::<0, true>(linear, x, panel, rows, blocks, room, ahead),
                        (1, _) => T::all::<1, false>(linear, x, panel, rows, blocks, room, ahead),
                        _ => T::all::<16, true>(linear, x, panel, rows, blocks, room, ahead),
                    }
                }
            }
        }
    }
}

/// The packed weights that are widened next. They are asked for while these are multiplied: nothing else reads ahead.
#[derive(Clone, Copy)]
struct Ahead {
    next: *const u8,
    block_bytes: usize,
}

impl Ahead {
    /// Asks for block `b`.
    #[inline(always)]
    fn ask(&self, b: usize) {
        for line in (0..self.block_bytes).step_by(64) {
            let at = self.next.wrapping_add(b * self.block_bytes + line);
            // SAFETY: a prefetch does not fault; every processor with these kernels has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
    }
}

/// A register's rows of `Tile::widen`.
#[inline(always)]
unsafe fn widen<W: Unpack, R: Register>(groups: &[u8], room: &WidePanel) {
    let mut b = 0;
    // SAFETY: `group` is a whole group in this type's layout, and there is room for `CHUNK` blocks.
    unsafe {
        let integers = room.integers.base();
        let scales = room.scales.base().cast::<f32>();
        let offsets = room.offsets.base().cast::<f32>();
        let offset_integers = room.offset_integers.base();
        let offset_units = room.offset_units.base().cast::<f32>();
        for (g, group) in groups.chunks_exact(W::GROUP_BYTES).enumerate() {
            let group = group.as_ptr();
            if W::OFFSETS == 16 {
                for c in 0..2 {
                    let w = nibbles::<R>(group.add(W::NIBBLES_OF_OFFSETS), c);
                    for v in 0..4 {
                        let step = g * OFFSET_STEPS + 4 * c + v;
                        R::store_chunk(w[v], offset_integers.add(step * STEP_BYTES));
                    }
                }
                R::store(W::offset_units::<R>(group), offset_units.add(g * PANEL));
            }
            for j in 0..W::GROUP_BLOCKS {
                let block = group.add(W::HEADER + j * W::BLOCK_BYTES);
                for_each_eight!(C, {
                    let w = W::eight::<R, C>(block);
                    for v in 0..4 {
                        let step = b * STEPS + 4 * C + v;
                        R::store_chunk(w[v], integers.add(step * STEP_BYTES));
                    }
                });
                R::store(W::scales::<R>(group, block), scales.add(b * PANEL));
                if W::OFFSETS == 1 {
                    R::store(W::offsets::<R>(group, block), offsets.add(b * PANEL));
                }
                b += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn all_tiles<T: Tile, const OFFSETS: usize, const SCALES_GROUPS: bool>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panel: usize,
    rows: Range<usize>,
    blocks: Range<usize>,
    room: &WidePanel,
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
                let mut sums_of_groups: [&[QuantizedBlock]; $m] = [&[]; $m];
                for m in 0..$m {
                    inputs[m] = x.row(row + m, columns);
                    if OFFSETS == 16 {
                        let sums = x.sums_for(OFFSETS, row + m, columns);
                        sums_of_groups[m] = &sums[blocks.start / GROUP..];
                    }
                }
                let sums = all_sums.add((row - rows.start) * PANEL);
                if is_first {
                    *sums.cast() = [0.0_f32; $m * PANEL];
                }
                if is_last {
                    for m in 0..$m {
                        ask_for_output(linear, panel, row + m);
                    }
                }
                let inputs = Inputs {
                    rows: &inputs,
                    sums_of_groups: &sums_of_groups,
                };
                let (blocks, ahead) = (blocks.clone(), ahead.take());
                add::<T, OFFSETS, SCALES_GROUPS, $m>(room, inputs, blocks, sums, ahead);
                // Right behind each tile: the next one is computed while the memory takes these.
                if is_last {
                    for m in 0..$m {
                        let sums = &*sums.add(m * PANEL).cast::<[f32; PANEL]>();
                        linear.store(panel * PANEL, row + m, sums);
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

/// The rows of a tile: all their blocks, and the sums of the groups that are there.
struct Inputs<'a, const M: usize> {
    rows: &'a [&'a [QuantizedBlock]; M],
    sums_of_groups: &'a [&'a [QuantizedBlock]; M],
}

/// Adds the products of the widened blocks with the rows' `blocks` to the rows' sums.
///
/// # Safety
/// The rows have the blocks, `sums` has 16 values for each row, and the processor has the instructions.
#[inline(always)]
unsafe fn add<T: Tile, const OFFSETS: usize, const SCALES_GROUPS: bool, const M: usize>(
    room: &WidePanel,
    inputs: Inputs<'_, M>,
    blocks: Range<usize>,
    sums: *mut f32,
    ahead: Option<Ahead>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let integers = room.integers.base();
        let scales = room.scales.base().cast::<f32>();
        let offsets = room.offsets.base().cast::<f32>();
        let mut products = [T::zeros(); M];
        let mut total = [T::load(sums); M];
        for m in 0..M {
            total[m] = T::load(sums.add(m * PANEL));
        }
        for b in 0..blocks.len() {
            if let Some(ahead) = ahead {
                ahead.ask(b);
            }
            let mut dots = [T::zero(); M];
            let w = integers.add(b * STEPS * STEP_BYTES);
            let mut x = [std::ptr::null::<QuantizedBlock>(); M];
            for m in 0..M {
                x[m] = inputs.rows[m].as_ptr().add(blocks.start + b);
            }
            for_each_step!(STEP, {
                let w = T::weights(w.add(STEP * STEP_BYTES));
                for m in 0..M {
                    dots[m] = T::add_products::<{ 4 * STEP }>(dots[m], w, x[m]);
                }
            });
            let scale = T::load(scales.add(b * PANEL));
            if SCALES_GROUPS {
                for m in 0..M {
                    products[m] = T::mul_add_one(T::floats(dots[m]), (*x[m]).scale, products[m]);
                }
                if (b + 1).is_multiple_of(GROUP) {
                    for m in 0..M {
                        total[m] = T::mul_add(products[m], scale, total[m]);
                        products[m] = T::zeros();
                    }
                    if OFFSETS == 16 {
                        add_offsets::<T, M>(room, inputs.sums_of_groups, b / GROUP, &mut total);
                    }
                }
                continue;
            }
            let offset = T::load(offsets.add(b * PANEL));
            for m in 0..M {
                let x = &*x[m];
                total[m] = T::mul_add(T::floats(dots[m]), T::times(scale, x.scale), total[m]);
                if OFFSETS == 1 {
                    total[m] = T::mul_add_one(offset, x.sum, total[m]);
                }
            }
        }
        for m in 0..M {
            T::store(total[m], sums.add(m * PANEL));
        }
    }
}

/// Adds the offsets of a group. Behind its products: registers do not hold both.
///
/// # Safety
/// As for `add`.
#[inline(always)]
unsafe fn add_offsets<T: Tile, const M: usize>(
    room: &WidePanel,
    rows: &[&[QuantizedBlock]; M],
    group: usize,
    total: &mut [T::Floats; M],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let w = room.offset_integers.base();
        let w = w.add(group * OFFSET_STEPS * STEP_BYTES);
        let mut x = [std::ptr::null::<QuantizedBlock>(); M];
        for m in 0..M {
            x[m] = &rows[m][group];
        }
        let mut dots = [T::zero(); M];
        for_each_step!(STEP, {
            if STEP < OFFSET_STEPS {
                let w = T::weights(w.add(STEP * STEP_BYTES));
                for m in 0..M {
                    dots[m] = T::add_products::<{ 4 * STEP }>(dots[m], w, x[m]);
                }
            }
        });
        let units = room.offset_units.base().cast::<f32>();
        let units = T::load(units.add(group * PANEL));
        for m in 0..M {
            let units = T::times(units, (*x[m]).scale);
            total[m] = T::mul_add(T::floats(dots[m]), units, total[m]);
        }
    }
}

/// The functions of a tile for one instruction set, each the caller's promise handed on.
macro_rules! tile_with {
    (
        $name:ident, $rows:literal rows, $features:literal, $($register:ty),*;
        $(fn $f:ident $(<const $n:ident>)?($($arg:ident: $type:ty),*) $(-> $out:ty)? $body:block)*
    ) => {
        impl Tile for $name {
            const ROWS: usize = $rows;

            #[target_feature(enable = $features)]
            unsafe fn all<const OFFSETS: usize, const SCALES_GROUPS: bool>(
                linear: &Linear<'_>,
                x: &QuantizedRows,
                panel: usize,
                rows: Range<usize>,
                blocks: Range<usize>,
                room: &WidePanel,
                ahead: Ahead,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    all_tiles::<Self, OFFSETS, SCALES_GROUPS>(linear, x, panel, rows, blocks, room, ahead)
                }
            }

            #[inline(always)]
            unsafe fn widen<W: Unpack>(groups: &[u8], room: &WidePanel) {
                // SAFETY: the caller's promise.
                unsafe { $(widen::<W, $register>(groups, room);)* }
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
    Avx2, 4 rows, "avx2,fma,f16c", Eight<0>, Eight<1>;

    fn weights(p: *const u8) -> [__m256i; 2] {
        let p = p.cast::<__m256i>();
        [_mm256_load_si256(p), _mm256_load_si256(p.add(1))]
    }

    fn add_products<const OFFSET>(sum: [__m256i; 2], w: [__m256i; 2], x: *const QuantizedBlock) -> [__m256i; 2] {
        let x = pair(x.byte_add(OFFSET).cast());
        [add_products(sum[0], w[0], x), add_products(sum[1], w[1], x)]
    }
}

vnni! {
    /// 16 pairs of weights.
    add_products_at: "vpdpwssd", "1to16", zmm_reg, __m512i, QuantizedBlock
}

tile_with! {
    Avx512, 8 rows, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni", Sixteen;

    fn weights(p: *const u8) -> __m512i {
        _mm512_load_si512(p.cast())
    }

    fn add_products<const OFFSET>(sum: __m512i, w: __m512i, x: *const QuantizedBlock) -> __m512i {
        add_products_at::<OFFSET>(sum, w, x)
    }
}
