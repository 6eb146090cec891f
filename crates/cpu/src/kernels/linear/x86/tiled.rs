//! Many rows: a panel, or two side by side, is widened into a near cache, as much of its columns as fits, and used for a block
//! of rows; sums wait in memory between one such chunk of columns and the next. All types share this kernel.

use super::for_each_eight;
use super::pieces::nibbles;
use super::registers::{Avx2, Avx512, Eight, Panel, Register, Sixteen};
use super::unpack::Unpack;
use crate::kernels::activations::{QuantizedRows, RowsOfBlocks};
use crate::kernels::linear::Linear;
use crate::memory::AlignedBytes;
use crate::pack::{BLOCK, PANEL};
use mettle_plan::BackendError;
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks of a panel, or of two, that are widened at a time, unless a set says otherwise: 18 KB of integers and 3 KB of scales, in a
/// cache of 32 KB.
const CHUNK: usize = 18;

/// The most that any instruction set widens at a time.
const MOST_BLOCKS: usize = Avx512::CHUNK * Avx512::PANELS;

/// Panels, or pairs of panels side by side, whose sums wait while some columns of many rows stay in the second-level cache.
const WAITING: usize = 8;

/// Rows of the largest tile.
const MOST_ROWS: usize = 12;

/// Blocks of a group, for all types whose groups are scaled or have offsets.
const GROUP: usize = 256 / BLOCK;

/// Pairs of 16-bit integers in a block of a row.
const STEPS: usize = BLOCK / 2;

/// The same of a group's offsets.
const OFFSET_STEPS: usize = 16 / 2;

/// One such pair of each row of a panel.
type Step = [[i16; 2]; PANEL];

/// A block of a panel, widened.
#[repr(C, align(64))]
struct WideBlock {
    steps: [Step; STEPS],
    scales: [f32; PANEL],
    offsets: [f32; PANEL],
    /// Where sums are multiplied: what the products of its own integers are too much, negative.
    less_own: [i32; PANEL],
}

/// The 16 offsets of a group, widened.
#[repr(C, align(64))]
struct WideOffsets {
    steps: [Step; OFFSET_STEPS],
    units: [f32; PANEL],
}

/// One thread's widened weights and waiting sums.
pub struct WidePanel {
    /// `MOST_BLOCKS` of [`WideBlock`], one panel's behind the other's.
    blocks: AlignedBytes,
    /// [`WideOffsets`] of their groups.
    offsets: AlignedBytes,
    /// `[WAITING][row of the input][panel][row]`.
    sums: AlignedBytes,
    /// The same of a group so far, without its scales, for the rows of a tile: zeros between groups.
    products: AlignedBytes,
}

impl WidePanel {
    pub fn new() -> Result<WidePanel, BackendError> {
        let room = |bytes| AlignedBytes::zeroed("widened weights", bytes);
        Ok(WidePanel {
            blocks: room(MOST_BLOCKS * size_of::<WideBlock>())?,
            offsets: room(MOST_BLOCKS / GROUP * size_of::<WideOffsets>())?,
            sums: room(WAITING * Avx512::PANELS * Avx512::MANY * size_of::<[f32; PANEL]>())?,
            products: room(MOST_ROWS * Avx512::PANELS * size_of::<[f32; PANEL]>())?,
        })
    }

    pub fn bytes(&self) -> usize {
        let parts = [&self.blocks, &self.offsets, &self.sums, &self.products];
        parts.iter().map(|part| part.len()).sum()
    }

    /// Block `b` of panel `n` of those side by side.
    #[inline(always)]
    fn block<T: Tile>(&self, n: usize, b: usize) -> *mut WideBlock {
        debug_assert!(n < T::PANELS && b < T::CHUNK);
        let at = n * T::CHUNK + b;
        self.blocks.base().cast::<WideBlock>().wrapping_add(at)
    }

    #[inline(always)]
    fn offsets<T: Tile>(&self, n: usize, g: usize) -> *mut WideOffsets {
        debug_assert!(n < T::PANELS && g < T::CHUNK / GROUP);
        let at = n * (T::CHUNK / GROUP) + g;
        self.offsets.base().cast::<WideOffsets>().wrapping_add(at)
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
/// The same, and the processor has AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub unsafe fn avx_vnni<W: Unpack>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
) {
    // SAFETY: the caller's promise.
    unsafe { all::<W, AvxVnni>(linear, x, panels, room) }
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
    unsafe {
        match x.has_own_products() {
            true => all::<W, Avx512OfSums>(linear, x, panels, room),
            false => all::<W, Avx512>(linear, x, panels, room),
        }
    }
}

/// AVX2 with an instruction that multiplies and adds.
struct AvxVnni;

/// AVX-512 whose tiles multiply sums.
struct Avx512OfSums;

/// How an instruction set computes a tile.
trait Tile {
    type Lanes: Panel;
    /// Rows of the largest tile.
    const ROWS: usize;
    /// Rows that go over widened weights at the most: whole tiles, also of four.
    const MANY: usize;
    /// Blocks of so many rows that stay in the second-level cache while they meet some panels.
    const STRETCH: usize;
    /// Panels side by side in it.
    const PANELS: usize;
    /// Whether it multiplies sums, and takes what the products of their own integers are too much from the rows and the panels.
    const OF_SUMS: bool;
    /// Blocks of each that are widened at a time.
    const CHUNK: usize = CHUNK / Self::PANELS;

    /// All tiles of some rows and panels. Types that have as many `OFFSETS`, and whose groups are scaled or not, share it: it is a
    /// call.
    ///
    /// # Safety
    /// As for `widen_and_multiply`, and the processor has the instructions (so for all).
    unsafe fn all<const OFFSETS: usize, const SCALES_GROUPS: bool>(
        part: Part<'_>,
        room: &WidePanel,
        ahead: Ahead<2>,
    );

    /// Widens whole groups of panel `n` of those side by side.
    ///
    /// # Safety
    /// They are in this type's layout, and within `Self::CHUNK` blocks.
    unsafe fn widen<W: Unpack>(groups: &[u8], room: &WidePanel, n: usize);

    /// Adds the products of `N` panels' widened blocks with the rows' `blocks` to the rows' sums.
    ///
    /// # Safety
    /// The rows have the blocks, `sums` has 16 values for each row and panel, at a multiple of 64.
    unsafe fn add<const OFFSETS: usize, const SCALES_GROUPS: bool, const M: usize, const N: usize>(
        room: &WidePanel,
        inputs: Inputs,
        blocks: Range<usize>,
        sums: *mut f32,
        ahead: Option<Ahead<N>>,
    );
}

#[inline(always)]
unsafe fn all<W: Unpack, T: Tile>(
    linear: &Linear<'_>,
    x: &QuantizedRows,
    panels: Range<usize>,
    room: &mut WidePanel,
) {
    const {
        assert!(!W::SCALES_GROUPS || W::GROUP_BLOCKS == GROUP);
        assert!(T::CHUNK * T::PANELS <= MOST_BLOCKS && T::PANELS <= Avx512::PANELS);
        assert!(T::ROWS <= MOST_ROWS && T::MANY <= Avx512::MANY);
    };
    let blocks = linear.weights.columns / BLOCK;
    let stretch = even_part::<W>(blocks, T::STRETCH);
    let chunk = even_part::<W>(stretch, T::CHUNK);
    let parts = linear.rows.div_ceil(T::MANY);
    let some_rows = linear.rows.div_ceil(parts).next_multiple_of(T::ROWS);
    for rows in (0..linear.rows).step_by(some_rows) {
        let rows = rows..linear.rows.min(rows + some_rows);
        for first in panels.clone().step_by(WAITING * T::PANELS) {
            let waiting = first..panels.end.min(first + WAITING * T::PANELS);
            for first in (0..blocks).step_by(stretch) {
                let stretch = first..blocks.min(first + stretch);
                for panel in waiting.clone().step_by(T::PANELS) {
                    let side_by_side = panel..waiting.end.min(panel + T::PANELS);
                    // Few lines of the cache where nothing has to wait for the next stretch.
                    let place = match stretch.len() == blocks {
                        true => 0,
                        false => panel - waiting.start,
                    };
                    for first in stretch.clone().step_by(chunk) {
                        let some = Part {
                            linear,
                            x,
                            panels: side_by_side.clone(),
                            rows: rows.clone(),
                            blocks: first..stretch.end.min(first + chunk),
                            // SAFETY: there is room for as many panels with `MANY` each.
                            sums: unsafe {
                                room.sums.base().cast::<f32>().add(place * T::MANY * PANEL)
                            },
                            // Most often; it is only asked for.
                            next: match first + chunk < stretch.end {
                                true => (panel, first + chunk),
                                false => (panel + T::PANELS, stretch.start),
                            },
                        };
                        // SAFETY: the caller's promise.
                        unsafe { widen_and_multiply::<W, T>(some, room) };
                    }
                }
            }
        }
    }
}

/// Blocks of a part, of as few parts of `blocks` as have at most so many: whole groups, nearly as many in each part.
fn even_part<W: Unpack>(blocks: usize, most: usize) -> usize {
    let parts = blocks.div_ceil(most / W::GROUP_BLOCKS * W::GROUP_BLOCKS);
    blocks.div_ceil(parts).next_multiple_of(W::GROUP_BLOCKS)
}

/// What is widened at a time, and the rows that it is multiplied with.
struct Part<'a> {
    linear: &'a Linear<'a>,
    x: &'a QuantizedRows,
    /// Side by side.
    panels: Range<usize>,
    rows: Range<usize>,
    blocks: Range<usize>,
    /// `[row][panel][row of the panel]`.
    sums: *mut f32,
    /// The panel and the block that come next.
    next: (usize, usize),
}

/// # Safety
/// As for `Linear::run`; there is room for the sums, and at most `Tile::CHUNK` blocks of `Tile::PANELS` panels.
#[inline(always)]
unsafe fn widen_and_multiply<W: Unpack, T: Tile>(part: Part<'_>, room: &mut WidePanel) {
    let weights = part.linear.weights;
    let bytes = |b: usize| b / W::GROUP_BLOCKS * W::GROUP_BYTES;
    let mut ahead = Ahead {
        next: [std::ptr::null(); 2],
        block_bytes: W::GROUP_BYTES.div_ceil(W::GROUP_BLOCKS),
    };
    for (n, panel) in part.panels.clone().enumerate() {
        let packed = weights.panel(panel);
        let groups = &packed[bytes(part.blocks.start)..bytes(part.blocks.end)];
        // SAFETY: the caller's promise.
        unsafe { T::widen::<W>(groups, room, n) };
        let panels_on = part.next.0 - part.panels.start;
        let on = panels_on * weights.panel_bytes + bytes(part.next.1);
        ahead.next[n] = packed.as_ptr().wrapping_add(on);
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (W::OFFSETS, W::SCALES_GROUPS) {
            (0, false) => T::all::<0, false>(part, room, ahead),
            (0, true) => T::all::<0, true>(part, room, ahead),
            (1, _) => T::all::<1, false>(part, room, ahead),
            _ => T::all::<16, true>(part, room, ahead),
        }
    }
}

/// The packed weights of `N` panels that are widened next. They are asked for while these are multiplied: nothing else reads
/// ahead.
#[derive(Clone, Copy)]
struct Ahead<const N: usize> {
    next: [*const u8; N],
    block_bytes: usize,
}

impl<const N: usize> Ahead<N> {
    /// Asks for block `b` of each.
    #[inline(always)]
    fn ask(&self, b: usize) {
        for n in 0..N {
            for line in (0..self.block_bytes).step_by(64) {
                let at = self.next[n].wrapping_add(b * self.block_bytes + line);
                // SAFETY: a prefetch does not fault; every processor with these kernels has it.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
            }
        }
    }

    /// Those of the first panels.
    #[inline(always)]
    fn of<const COUNT: usize>(&self) -> Ahead<COUNT> {
        let mut next = [std::ptr::null(); COUNT];
        next.copy_from_slice(&self.next[..COUNT]);
        Ahead {
            next,
            block_bytes: self.block_bytes,
        }
    }
}

/// A register's rows of `Tile::widen`.
#[inline(always)]
unsafe fn widen<W: Unpack, R: Register, T: Tile>(groups: &[u8], room: &WidePanel, n: usize) {
    let mut b = 0;
    // SAFETY: `group` is a whole group in this type's layout, and there is room for `T::CHUNK` blocks.
    unsafe {
        for (g, group) in groups.chunks_exact(W::GROUP_BYTES).enumerate() {
            let group = group.as_ptr();
            if W::OFFSETS == 16 {
                let out = room.offsets::<T>(n, g);
                for c in 0..2 {
                    let w = nibbles::<R>(group.add(W::NIBBLES_OF_OFFSETS), c);
                    for v in 0..4 {
                        R::store_chunk(w[v], (&raw mut (*out).steps[4 * c + v]).cast());
                    }
                }
                R::store(W::offset_units::<R>(group), (&raw mut (*out).units).cast());
            }
            for j in 0..W::GROUP_BLOCKS {
                let block = group.add(W::HEADER + j * W::BLOCK_BYTES);
                let out = room.block::<T>(n, b);
                for_each_eight!(C, {
                    let w = W::eight::<R, C>(block);
                    for v in 0..4 {
                        R::store_chunk(w[v], (&raw mut (*out).steps[4 * C + v]).cast());
                    }
                });
                R::store(
                    W::scales::<R>(group, block),
                    (&raw mut (*out).scales).cast(),
                );
                if W::OFFSETS == 1 {
                    R::store(
                        W::offsets::<R>(group, block),
                        (&raw mut (*out).offsets).cast(),
                    );
                }
                if T::OF_SUMS {
                    avx512_of_sums::write_less_own(out);
                }
                b += 1;
            }
        }
    }
}

/// `Tile::all` for `N` panels.
#[inline(always)]
unsafe fn all_tiles<T: Tile, const OFFSETS: usize, const SCALES_GROUPS: bool, const N: usize>(
    part: Part<'_>,
    room: &WidePanel,
    ahead: Ahead<2>,
) {
    let Part {
        linear,
        x,
        rows,
        blocks,
        ..
    } = part;
    let panel = part.panels.start;
    let columns = linear.weights.columns;
    let is_first = blocks.start == 0;
    let is_last = blocks.end * BLOCK == columns;
    let mut row = rows.start;
    let mut ahead = Some(ahead.of::<N>());
    // SAFETY: the caller's promise; tiles stay inside `rows`.
    unsafe {
        macro_rules! tile {
            ($m:literal) => {
                let sums = match is_first && is_last {
                    true => part.sums,
                    false => part.sums.add((row - rows.start) * N * PANEL),
                };
                if is_first {
                    for i in 0..$m * N {
                        T::Lanes::store(T::Lanes::zeros(), sums.add(i * PANEL));
                    }
                }
                if is_last {
                    for m in 0..$m {
                        for n in 0..N {
                            ask_for_output(linear, panel + n, row + m);
                        }
                    }
                }
                let inputs = Inputs {
                    rows: x.blocks_of(row..row + $m, columns),
                    sums_of_groups: match OFFSETS == 16 {
                        true => x.sums_of(row..row + $m, columns),
                        false => x.blocks_of(row..row + $m, columns),
                    },
                };
                let (blocks, ahead) = (blocks.clone(), ahead.take());
                T::add::<OFFSETS, SCALES_GROUPS, $m, N>(room, inputs, blocks, sums, ahead);
                // Right behind each tile: the next one is computed while the memory takes these.
                if is_last {
                    store_rows::<T::Lanes, N>(linear, panel, row..row + $m, sums);
                }
                row += $m;
            };
        }
        // Sixteen are two of eight: four rows alone wait for their sums.
        while T::ROWS == 12 && row + 12 <= rows.end && row + 16 != rows.end {
            tile!(12);
        }
        while T::ROWS == 12 && row + 8 <= rows.end {
            tile!(8);
        }
        while T::ROWS == 6 && row + 6 <= rows.end {
            tile!(6);
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
pub fn ask_for_output(linear: &Linear<'_>, panel: usize, row: usize) {
    let ask = |at: *const f32| {
        // SAFETY: a prefetch does not fault; every processor with these kernels has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    };
    ask(linear.out.address(row, panel * PANEL));
    if let Some(residual) = &linear.residual {
        ask(residual.address(row, panel * PANEL));
    }
}

/// `Linear::store` for rows of `N` panels, whose sums lie one behind the other, in whole registers: a copy of a row's sums in memory,
/// as the compiler makes it there, takes 8 % of such a product (Cascade Lake).
///
/// # Safety
/// As for `Linear::run`; the sums are there, and the processor has the instructions.
#[inline(always)]
unsafe fn store_rows<P: Panel, const N: usize>(
    linear: &Linear<'_>,
    panel: usize,
    rows: Range<usize>,
    sums: *const f32,
) {
    let first = panel * PANEL;
    let is_whole = first + N * PANEL <= linear.weights.rows;
    // SAFETY: the caller's promise; columns are checked to be inside.
    unsafe {
        if !is_whole {
            for (i, row) in rows.enumerate() {
                for n in 0..N {
                    let sums = sums.add((i * N + n) * PANEL).cast::<[f32; PANEL]>();
                    linear.store(first + n * PANEL, row, &*sums);
                }
            }
            return;
        }
        let out = linear.out.columns(first, N * PANEL);
        let bias = linear
            .bias
            .map(|bias| bias[first..first + N * PANEL].as_ptr());
        let residual = linear.residual.as_ref();
        let residual = residual.map(|residual| residual.columns(first, N * PANEL));
        for (i, row) in rows.enumerate() {
            for n in 0..N {
                let mut values = P::load(sums.add((i * N + n) * PANEL));
                if let Some(bias) = bias {
                    values = P::add(values, P::load(bias.add(n * PANEL)));
                }
                if let Some(residual) = &residual {
                    values = P::add(values, P::load(residual.address(row, n * PANEL)));
                }
                P::write(values, out.address(row, n * PANEL).cast_mut());
            }
        }
    }
}

const _: () = assert!(STEPS == 16);

/// Unrolled: offsets become part of the instructions, and a pointer a row is all that is needed.
macro_rules! for_each_step {
    ($step:ident, $body:block) => {
        for_each_step!(@ $step, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $step:ident, $body:block, $($number:literal)*) => {
        $({
            const $step: usize = $number;
            $body
        })*
    };
}

/// The same for pairs of steps.
macro_rules! for_each_eighth {
    ($pair:ident, $body:block) => {
        for_each_step!(@ $pair, $body, 0 1 2 3 4 5 6 7)
    };
}

/// The body for each row of a tile, with its number a constant.
macro_rules! for_each_row {
    ($row:ident of $m:ident, $body:block) => {
        for_each_row!(@ $row of $m, $body, 0 1 2 3 4 5 6 7 8 9 10 11)
    };
    (@ $row:ident of $m:ident, $body:block, $($number:literal)*) => {
        $(if $number < $m {
            const $row: usize = $number;
            $body
        })*
    };
}

mod avx2;
mod avx512;
mod avx512_of_sums;
mod column;

pub use avx512_of_sums::SUM_LOOP;

/// The rows of a tile: all their blocks, and the sums of the groups if there are any.
#[derive(Clone, Copy)]
struct Inputs {
    rows: RowsOfBlocks,
    sums_of_groups: RowsOfBlocks,
}

/// The functions of a tile for one instruction set, each the caller's promise handed on.
macro_rules! tile_with {
    (
        $name:ident, $features:literal, $lanes:ty, $($register:ty),*; $($panels:literal)|* panels by $add:path;
        $(const $const:ident: $type:ty = $value:expr;)*
    ) => {
        impl Tile for $name {
            type Lanes = $lanes;
            const PANELS: usize = [$($panels),*][0];
            $(const $const: $type = $value;)*

            #[target_feature(enable = $features)]
            unsafe fn all<const OFFSETS: usize, const SCALES_GROUPS: bool>(
                part: Part<'_>,
                room: &WidePanel,
                ahead: Ahead<2>,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    match part.panels.len() {
                        $($panels => all_tiles::<Self, OFFSETS, SCALES_GROUPS, $panels>(part, room, ahead),)*
                        count => unreachable!("{count} panels side by side"),
                    }
                }
            }

            #[inline(always)]
            unsafe fn widen<W: Unpack>(groups: &[u8], room: &WidePanel, n: usize) {
                // SAFETY: the caller's promise.
                unsafe { $(widen::<W, $register, Self>(groups, room, n);)* }
            }

            #[inline(always)]
            unsafe fn add<const OFFSETS: usize, const SCALES_GROUPS: bool, const M: usize, const N: usize>(
                room: &WidePanel,
                inputs: Inputs,
                blocks: Range<usize>,
                sums: *mut f32,
                ahead: Option<Ahead<N>>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { $add(room, inputs, blocks, sums, ahead) }
            }
        }
    };
}

tile_with! {
    Avx2, "avx2,fma,f16c", Self, Eight<0>, Eight<1>; 1 panels by avx2::add::<false, OFFSETS, SCALES_GROUPS, M, N>;
    const ROWS: usize = 4;
    // 410 KB of 512 (Zen 3).
    const MANY: usize = 144;
    const STRETCH: usize = 36;
    const OF_SUMS: bool = false;
}
tile_with! {
    AvxVnni, "avx2,fma,f16c,avxvnni", Avx2, Eight<0>, Eight<1>; 1 panels by avx2::add::<true, OFFSETS, SCALES_GROUPS, M, N>;
    // 5 % over four: nothing but sums, weights and one value of a row takes registers.
    const ROWS: usize = 6;
    const MANY: usize = Avx2::MANY;
    const STRETCH: usize = Avx2::STRETCH;
    const OF_SUMS: bool = false;
}
tile_with! {
    Avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni", Self, Sixteen;
    2 | 1 panels by avx512::add::<OFFSETS, SCALES_GROUPS, M, N>;
    const ROWS: usize = 12;
    // 550 KB of 1024, or more.
    const MANY: usize = 144;
    const STRETCH: usize = 48;
    // 44 KB, in the second-level cache: it gives lines as fast as twelve rows are multiplied with them.
    const CHUNK: usize = 18;
    const OF_SUMS: bool = false;
}
tile_with! {
    Avx512OfSums, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni", Avx512, Sixteen;
    2 | 1 panels by avx512_of_sums::add::<OFFSETS, SCALES_GROUPS, M, N>;
    const ROWS: usize = 6;
    const MANY: usize = Avx512::MANY;
    const STRETCH: usize = Avx512::STRETCH;
    const OF_SUMS: bool = true;
}
