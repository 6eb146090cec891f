//! Many rows with AMX: tiles multiply 16 rows with a block of 16 outputs, AVX-512 applies scales and offsets.
//!
//! An activation is the sum of two bf16 (`TileRows`), a weight is one. Tiles add in f32, in an order of their own, and nothing is
//! rounded: all products are whole numbers, and no sum of some of a block's reaches 2^24. Where those of whole activations would,
//! products with the high parts (all multiples of 128) and with the low ones have a tile each, and their sum is rounded once, as the
//! integer would be that it stands for. Weights of more than eight bits (Q6_K) would be two bf16 each, and are faster without tiles.

use super::for_each_eight;
use super::pieces::nibbles;
use super::registers::{Register, Sixteen};
use super::tiled::ask_for_output;
use super::unpack::Unpack;
use crate::isa::ProductLoop;
use crate::kernels::activations::tiles::{self, Factors, TileRows};
use crate::kernels::linear::Linear;
use crate::memory::AlignedBytes;
use crate::pack::layout::Layout;
use crate::pack::{BLOCK, PANEL};
use mettle_plan::BackendError;
use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows of a tile.
const TILE: usize = 16;

/// Panels that are multiplied with a tile of rows while it is there.
const PANELS: usize = 4;

/// Blocks that are multiplied before any is scaled. Their results wait in the first-level cache, beside these weights.
const CHUNK: usize = 2;

/// Blocks of a group, for all types whose groups are scaled or have offsets.
const GROUP: usize = 256 / BLOCK;

/// Rows and blocks of activations that many panels pass over (400 KB): they stay in the second-level cache, and weights are widened
/// once for so many rows.
const ROWS: usize = 128;
const BLOCKS: usize = 24;

/// Panels that pass over them before the next blocks: so many sums (260 KB) wait there meanwhile.
const WAITING: usize = 32;

/// Values of a tile of results.
const RESULTS: usize = TILE * PANEL;

/// The largest integer of an activation, and of its high part's multiples of 128.
const ACTIVATION: i64 = 16_256;
const HIGH: i64 = 127;

/// Whole numbers that f32 adds up exactly.
const EXACT: i64 = 1 << 24;

/// Tiles of results that a type's products take.
const fn sums_of<W: Layout>() -> usize {
    let largest = W::LARGEST as i64 * BLOCK as i64;
    assert!(!takes_tiles::<W>() || largest * HIGH < EXACT);
    if largest * ACTIVATION < EXACT { 1 } else { 2 }
}

/// Whether a type's integers are bf16.
pub const fn takes_tiles<W: Layout>() -> bool {
    W::LARGEST <= 256
}

/// A block of a panel, or the offsets of a group.
#[repr(C, align(64))]
struct WideBlock {
    /// A tile: two columns of 16 outputs a row.
    weights: [u32; TILE * PANEL],
    scales: [f32; PANEL],
    offsets: [f32; PANEL],
}

/// What one thread works in.
pub struct TileRoom {
    /// `[CHUNK][PANELS]`, then the offsets of a group.
    blocks: AlignedBytes,
    /// `[CHUNK][PANELS][sums]`, then what a group's offsets come to.
    results: AlignedBytes,
    /// `[WAITING][ROWS]`.
    sums: AlignedBytes,
    /// `[PANELS][ROWS]`, of a group so far, without its scales.
    products: AlignedBytes,
}

impl TileRoom {
    pub fn new() -> Result<TileRoom, BackendError> {
        let room = |bytes| AlignedBytes::zeroed("widened weights", bytes);
        let sums = |panels| room(panels * ROWS * size_of::<[f32; PANEL]>());
        let results = (2 * CHUNK + 1) * PANELS * RESULTS;
        Ok(TileRoom {
            blocks: room((CHUNK + 1) * PANELS * size_of::<WideBlock>())?,
            results: room(results * size_of::<f32>())?,
            sums: sums(WAITING)?,
            products: sums(PANELS)?,
        })
    }

    pub fn bytes(&self) -> usize {
        let parts = [&self.blocks, &self.results, &self.sums, &self.products];
        parts.iter().map(|part| part.len()).sum()
    }

    fn block(&self, b: usize, panel: usize) -> *mut WideBlock {
        assert!(b <= CHUNK && panel < PANELS);
        let block = b * PANELS + panel;
        self.blocks.base().cast::<WideBlock>().wrapping_add(block)
    }

    fn results(&self) -> *mut f32 {
        self.results.base().cast()
    }

    /// Those of a group's offsets.
    fn offset_results(&self) -> *mut f32 {
        self.results().wrapping_add(result_at::<2>(CHUNK, 0))
    }

    /// The sums of a row, counted from the first of `ROWS`, and the panel that waits at `place`. The next row's are behind them.
    fn sums(&self, place: usize, row: usize) -> *mut f32 {
        assert!(place < WAITING && row + TILE <= ROWS);
        let sums = self.sums.base().cast::<f32>();
        sums.wrapping_add((place * ROWS + row) * PANEL)
    }

    /// The same of products.
    fn products(&self, panel: usize, row: usize) -> *mut f32 {
        assert!(panel < PANELS && row + TILE <= ROWS);
        let products = self.products.base().cast::<f32>();
        products.wrapping_add((panel * ROWS + row) * PANEL)
    }
}

/// Where the results of a block and a panel lie.
#[inline(always)]
const fn result_at<const SUMS: usize>(b: usize, panel: usize) -> usize {
    (b * PANELS + panel) * SUMS * RESULTS
}

/// # Safety
/// As for `Linear::run`; the processor has what `Isa::Amx` stands for, and the rows are there as `tiles`, from row `first` on.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn run<W: Unpack>(
    linear: &Linear<'_>,
    tiles: &[TileRows; 2],
    first: usize,
    panels: Range<usize>,
    room: &mut TileRoom,
) {
    const { assert!(!W::SCALES_GROUPS || W::GROUP_BLOCKS == GROUP && GROUP.is_multiple_of(CHUNK)) };
    let blocks = linear.weights.columns / BLOCK;
    // Parts of columns that are about as long. Groups are not cut.
    let part = blocks
        .div_ceil(blocks.div_ceil(BLOCKS).max(1))
        .next_multiple_of(GROUP);
    let part = if blocks <= BLOCKS {
        blocks.max(1)
    } else {
        part
    };
    let pass = Pass {
        linear,
        tiles,
        first,
        room,
    };
    // SAFETY: the caller's promise; passes stay inside the rows, panels and blocks that there are.
    unsafe {
        configure();
        for row in (0..linear.rows).step_by(ROWS) {
            let rows = row..linear.rows.min(row + ROWS);
            for panel in panels.clone().step_by(WAITING) {
                let panels = panel..panels.end.min(panel + WAITING);
                for b in (0..blocks).step_by(part) {
                    let blocks = b..blocks.min(b + part);
                    pass.some::<W>(rows.clone(), panels.clone(), blocks);
                }
            }
        }
        release();
    }
}

/// Panels that are multiplied together, and where the first one's sums wait.
struct Together {
    place: usize,
    panels: Range<usize>,
}

/// A product under way, for one thread.
struct Pass<'a> {
    linear: &'a Linear<'a>,
    tiles: &'a [TileRows; 2],
    first: usize,
    room: &'a TileRoom,
}

// SAFETY: for every block below: the caller of `run` promised that the rows are there and that the processor has the instructions.
impl Pass<'_> {
    /// Adds the products of some rows with some blocks of some panels to the sums that wait.
    #[inline(always)]
    unsafe fn some<W: Unpack>(
        &self,
        rows: Range<usize>,
        panels: Range<usize>,
        blocks: Range<usize>,
    ) {
        // Five are three and two: one alone would have the rows to itself.
        let count = panels.len().div_ceil(panels.len().div_ceil(PANELS).max(1));
        for first in panels.clone().step_by(count.max(1)) {
            let together = Together {
                place: first - panels.start,
                panels: first..panels.end.min(first + count),
            };
            for b in blocks.clone().step_by(CHUNK) {
                let blocks = b..blocks.end.min(b + CHUNK);
                // SAFETY: as above.
                unsafe {
                    self.widen::<W>(together.panels.clone(), blocks.clone());
                    self.ask_for_next::<W>(together.panels.clone(), blocks.end);
                    self.all_rows::<W>(rows.clone(), &together, blocks);
                }
            }
        }
    }

    /// A group of a panel, and one of its blocks.
    #[inline(always)]
    fn packed<W: Unpack>(&self, panel: usize, b: usize) -> (*const u8, *const u8) {
        let groups = self.linear.weights.panel(panel);
        let (g, j) = (b / W::GROUP_BLOCKS, b % W::GROUP_BLOCKS);
        let group = &groups[g * W::GROUP_BYTES..(g + 1) * W::GROUP_BYTES];
        (
            group.as_ptr(),
            group[W::HEADER + j * W::BLOCK_BYTES..].as_ptr(),
        )
    }

    /// Makes tiles of some blocks, and of their group's offsets where it ends.
    #[inline(always)]
    unsafe fn widen<W: Unpack>(&self, panels: Range<usize>, blocks: Range<usize>) {
        type R = Sixteen;
        // SAFETY: as above; the blocks are whole.
        unsafe {
            for (p, panel) in panels.enumerate() {
                for (i, b) in blocks.clone().enumerate() {
                    let (group, block) = self.packed::<W>(panel, b);
                    let out = self.room.block(i, p);
                    for_each_eight!(C, {
                        let weights = eight::<W, C>(block);
                        for v in 0..4 {
                            let at = (&raw mut (*out).weights[PANEL * (4 * C + v)]).cast();
                            _mm512_store_si512(at, weights[v]);
                        }
                    });
                    R::store(
                        W::scales::<R>(group, block),
                        (&raw mut (*out).scales).cast(),
                    );
                    if W::OFFSETS == 1 {
                        let offsets = W::offsets::<R>(group, block);
                        R::store(offsets, (&raw mut (*out).offsets).cast());
                    }
                }
                if W::OFFSETS == 16 && blocks.end.is_multiple_of(GROUP) {
                    let (group, _) = self.packed::<W>(panel, blocks.start);
                    // Rows of the tile that no offset has are zeros from the start.
                    let out = self.room.block(CHUNK, p);
                    for c in 0..2 {
                        let w = nibbles::<R>(group.add(W::NIBBLES_OF_OFFSETS), c);
                        for v in 0..4 {
                            let at = (&raw mut (*out).weights[PANEL * (4 * c + v)]).cast();
                            _mm512_store_si512(at, tiles::to_brain_halves(w[v]));
                        }
                    }
                    R::store(W::offset_units::<R>(group), (&raw mut (*out).scales).cast());
                }
            }
        }
    }

    /// Asks for what is widened next: nothing else reads that far ahead.
    #[inline(always)]
    fn ask_for_next<W: Unpack>(&self, panels: Range<usize>, b: usize) {
        let is_inside = b * BLOCK < self.linear.weights.columns;
        for panel in panels.clone() {
            // Behind the last blocks come the next panels, if there are any: they are only asked for.
            let next = match is_inside {
                true => self.packed::<W>(panel, b).1,
                false => {
                    let panel = self.linear.weights.panel(panel);
                    panel.as_ptr().wrapping_add(panels.len() * panel.len())
                }
            };
            for line in (0..CHUNK * W::BLOCK_BYTES).step_by(64) {
                // SAFETY: a prefetch does not fault; every processor with these kernels has it.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line).cast()) };
            }
        }
    }

    /// Adds the products of the widened blocks with all of these rows to their sums, and finishes them after the last.
    #[inline(always)]
    unsafe fn all_rows<W: Unpack>(
        &self,
        rows: Range<usize>,
        together: &Together,
        blocks: Range<usize>,
    ) {
        let panels = together.panels.clone();
        let [x, x_sums] = self.tiles;
        let sums = const { sums_of::<W>() };
        let is_last = blocks.end * BLOCK == self.linear.weights.columns;
        let ends_group = blocks.end.is_multiple_of(GROUP);
        for row in rows.clone().step_by(TILE) {
            let count = TILE.min(rows.end - row);
            let part = Part {
                panels: panels.len(),
                blocks: blocks.len(),
            };
            if is_last {
                for row in row..row + count {
                    (panels.clone()).for_each(|panel| ask_for_output(self.linear, panel, row));
                }
            }
            let at = self.first + row;
            let inputs = x.block(at, blocks.start);
            let (weights, results) = (self.room.block(0, 0), self.room.results());
            // SAFETY: as above; 16 rows are there, and room for as many results.
            unsafe {
                match sums {
                    1 => part.multiply::<1>(weights, inputs, x.stride(), results),
                    _ => part.multiply::<2>(weights, inputs, x.stride(), results),
                }
                let mut offset_factors: *const Factors = std::ptr::null();
                if W::OFFSETS == 16 && ends_group {
                    let (weights, results) =
                        (self.room.block(CHUNK, 0), self.room.offset_results());
                    let group = blocks.start / GROUP;
                    let part = Part { blocks: 1, ..part };
                    let inputs = x_sums.block(at, group);
                    part.multiply::<1>(weights, inputs, x_sums.stride(), results);
                    offset_factors = x_sums.factors(at, group);
                }
                for panel in 0..part.panels {
                    let place = row - rows.start;
                    let unit = Unit {
                        room: self.room,
                        panel,
                        sums: self.room.sums(together.place + panel, place),
                        products: self.room.products(panel, place),
                        blocks: blocks.clone(),
                        factors: x.factors(at, blocks.start),
                        factors_of_block: x.rows(),
                        offset_factors,
                    };
                    match (sums, W::OFFSETS, W::SCALES_GROUPS) {
                        (1, 0, false) => unit.add::<1, 0>(),
                        (1, 1, _) => unit.add::<1, 1>(),
                        (_, 0, false) => unit.add::<2, 0>(),
                        (_, 1, _) => unit.add::<2, 1>(),
                        (_, 0, _) => unit.add_to_group::<0>(),
                        _ => unit.add_to_group::<16>(),
                    }
                    if is_last {
                        self.finish(unit.sums, row..row + count, panels.start + panel);
                    }
                }
            }
        }
    }

    /// Writes the sums of some rows.
    #[inline(always)]
    unsafe fn finish(&self, sums: *const f32, rows: Range<usize>, panel: usize) {
        for (i, row) in rows.enumerate() {
            // SAFETY: as above; nobody else touches these columns.
            unsafe {
                let sums = sums.add(i * PANEL).cast::<[f32; PANEL]>();
                self.linear.store(panel * PANEL, row, &*sums);
            }
        }
    }
}

/// Columns `8C..8C + 8` of a block as bf16, in the pairs that activations are in.
///
/// # Safety
/// As for `Unpack::eight`.
#[inline(always)]
unsafe fn eight<W: Unpack, const C: usize>(block: *const u8) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some((at, _)) = W::NIBBLES {
            let values = const { &nibbles_as_brain_halves::<W>() };
            let values = _mm512_loadu_si512(values.as_ptr().cast());
            let nibbles = Sixteen::chunk(block.add(at), C);
            // Only the lowest five bits of an index count, and values are there twice.
            return [
                _mm512_permutexvar_epi16(nibbles, values),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<8>(nibbles), values),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<4>(nibbles), values),
                _mm512_permutexvar_epi16(_mm512_srli_epi16::<12>(nibbles), values),
            ];
        }
        let mut weights = W::eight::<Sixteen, C>(block);
        for v in 0..4 {
            weights[v] = tiles::to_brain_halves(weights[v]);
        }
        weights
    }
}

/// What 4-bit values stand for, twice.
const fn nibbles_as_brain_halves<W: Unpack>() -> [u16; 32] {
    let mut table = [0; 32];
    if let Some((_, values)) = W::NIBBLES {
        let mut i = 0;
        while i < 32 {
            table[i] = ((values[i % 16] as f32).to_bits() >> 16) as u16;
            i += 1;
        }
    }
    table
}

/// Loads, clears, multiplies or stores a tile, named by its number. They are all the compiler ever does with tiles: none is saved.
macro_rules! tile {
    (load $t:literal, $from:expr, $stride:expr) => {
        asm!(
            concat!("tileloadd tmm", $t, ", [{from} + {stride}]"),
            from = in(reg) $from, stride = in(reg) $stride, options(nostack, preserves_flags, readonly),
        )
    };
    (clear $t:literal) => {
        asm!(concat!("tilezero tmm", $t), options(nostack, preserves_flags, nomem))
    };
    (multiply $to:literal, $a:literal, $b:literal) => {
        asm!(
            concat!("tdpbf16ps tmm", $to, ", tmm", $a, ", tmm", $b),
            options(nostack, preserves_flags, nomem),
        )
    };
    (store $t:literal, $to:expr) => {
        asm!(
            concat!("tilestored [{to} + {stride}], tmm", $t),
            to = in(reg) $to, stride = in(reg) 64_usize, options(nostack, preserves_flags),
        )
    };
}

/// Gives all tiles their size. Until `release` no other function may use them.
#[inline(always)]
unsafe fn configure() {
    #[repr(C, align(64))]
    struct Palette {
        number: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }
    const ALL: Palette = Palette {
        number: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
    };
    // SAFETY: the processor has tiles, and this process may use them.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &ALL, options(nostack, preserves_flags, readonly)) }
}

/// Lets go of all tiles, which the system then need not save.
#[inline(always)]
unsafe fn release() {
    // SAFETY: the processor has tiles.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) }
}

/// How many there are of each in what is multiplied together.
#[derive(Clone, Copy)]
struct Part {
    panels: usize,
    blocks: usize,
}

impl Part {
    /// Multiplies blocks of weights, which lie as in the room, with a tile of rows: results for each.
    ///
    /// # Safety
    /// The rows are there, and room for the results; tiles are configured.
    #[inline(always)]
    unsafe fn multiply<const SUMS: usize>(
        self,
        weights: *const WideBlock,
        x: *const u8,
        stride: usize,
        results: *mut f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            for b in 0..self.blocks {
                let x = x.add(b * tiles::BLOCK_BYTES);
                tile!(load 4, x, stride);
                tile!(load 5, x.add(64), stride);
                for panel in 0..self.panels {
                    let weights = weights.add(b * PANELS + panel);
                    let to = results.add(result_at::<SUMS>(b, panel));
                    tile!(load 6, &raw const (*weights).weights, 64_usize);
                    tile!(clear 0);
                    tile!(multiply 0, 4, 6);
                    if SUMS == 1 {
                        tile!(multiply 0, 5, 6);
                        tile!(store 0, to);
                        continue;
                    }
                    tile!(clear 1);
                    tile!(multiply 1, 5, 6);
                    tile!(store 0, to);
                    tile!(store 1, to.add(RESULTS));
                }
            }
        }
    }
}

/// Both parts of 16 rows times 32 columns of a panel. `Isa::product_loop` gives it only to those who may use tiles.
pub const TILE_LOOP: ProductLoop = ProductLoop {
    run: multiply_tiles,
    operations_per_step: 2 * TILE * 32 * PANEL,
};

fn multiply_tiles(times: usize) {
    // Numbers as kernels have them: with zeros some processors run at a higher clock.
    let rows: [[u16; 32]; TILE] = std::array::from_fn(|r| {
        std::array::from_fn(|c| (((r * 37 + c * 11) as f32 % 127.0 - 63.0).to_bits() >> 16) as u16)
    });
    // SAFETY: whoever got this function may use tiles, and the rows are all there.
    unsafe {
        configure();
        tile!(load 4, rows.as_ptr(), 64_usize);
        tile!(load 5, rows.as_ptr(), 64_usize);
        tile!(load 6, rows.as_ptr(), 64_usize);
        for _ in 0..times {
            tile!(clear 0);
            tile!(multiply 0, 4, 6);
            tile!(multiply 0, 5, 6);
        }
        release();
    }
}

/// What is to be scaled: the results of a tile of rows and a panel.
struct Unit<'a> {
    room: &'a TileRoom,
    panel: usize,
    /// The first row's.
    sums: *mut f32,
    products: *mut f32,
    blocks: Range<usize>,
    factors: *const Factors,
    /// From a block's factors to the next one's.
    factors_of_block: usize,
    offset_factors: *const Factors,
}

impl Unit<'_> {
    /// Block `i`'s result of a row.
    #[inline(always)]
    unsafe fn result<const SUMS: usize>(&self, i: usize, m: usize) -> __m512 {
        let at = result_at::<SUMS>(i, self.panel);
        let results = self.room.results().wrapping_add(at);
        // SAFETY: the caller's promise: there are 16 rows of results.
        unsafe {
            let result = _mm512_load_ps(results.add(m * PANEL));
            if SUMS == 1 {
                return result;
            }
            // Rounded once, as integers are that become floats.
            _mm512_add_ps(result, _mm512_load_ps(results.add(RESULTS + m * PANEL)))
        }
    }

    /// Adds scaled blocks to the sums.
    ///
    /// # Safety
    /// Results, weights, factors and sums of 16 rows are there; the processor has AVX-512.
    #[inline(always)]
    unsafe fn add<const SUMS: usize, const OFFSETS: usize>(&self) {
        let sums = self.sums;
        // SAFETY: the caller's promise.
        unsafe {
            let mut total = [_mm512_setzero_ps(); TILE];
            if self.blocks.start > 0 {
                for m in 0..TILE {
                    total[m] = _mm512_load_ps(sums.add(m * PANEL));
                }
            }
            for i in 0..self.blocks.len() {
                let w = &*self.room.block(i, self.panel);
                let scale = _mm512_load_ps(w.scales.as_ptr());
                let offset = _mm512_load_ps(w.offsets.as_ptr());
                let factors = self.factors.add(i * self.factors_of_block);
                for m in 0..TILE {
                    let [x_scale, x_sum] = *factors.add(m);
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale));
                    total[m] = _mm512_fmadd_ps(self.result::<SUMS>(i, m), scale, total[m]);
                    if OFFSETS == 1 {
                        total[m] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x_sum), total[m]);
                    }
                }
            }
            for m in 0..TILE {
                _mm512_store_ps(sums.add(m * PANEL), total[m]);
            }
        }
    }

    /// The same where the products of a group are scaled at its end.
    ///
    /// # Safety
    /// As for `add`.
    #[inline(always)]
    unsafe fn add_to_group<const OFFSETS: usize>(&self) {
        let (sums, products) = (self.sums, self.products);
        // SAFETY: the caller's promise.
        unsafe {
            let mut group = [_mm512_setzero_ps(); TILE];
            if !self.blocks.start.is_multiple_of(GROUP) {
                for m in 0..TILE {
                    group[m] = _mm512_load_ps(products.add(m * PANEL));
                }
            }
            for i in 0..self.blocks.len() {
                let factors = self.factors.add(i * self.factors_of_block);
                for m in 0..TILE {
                    let x_scale = _mm512_set1_ps((*factors.add(m))[0]);
                    group[m] = _mm512_fmadd_ps(self.result::<2>(i, m), x_scale, group[m]);
                }
            }
            if !self.blocks.end.is_multiple_of(GROUP) {
                for m in 0..TILE {
                    _mm512_store_ps(products.add(m * PANEL), group[m]);
                }
                return;
            }
            let w = &*self.room.block(0, self.panel);
            let scale = _mm512_load_ps(w.scales.as_ptr());
            let units = &*self.room.block(CHUNK, self.panel);
            let units = _mm512_load_ps(units.scales.as_ptr());
            let at = result_at::<1>(0, self.panel);
            let offsets = self.room.offset_results().wrapping_add(at);
            for m in 0..TILE {
                let mut total = match self.blocks.end == GROUP {
                    true => _mm512_setzero_ps(),
                    false => _mm512_load_ps(sums.add(m * PANEL)),
                };
                total = _mm512_fmadd_ps(group[m], scale, total);
                if OFFSETS == 16 {
                    let x_scale = _mm512_set1_ps((*self.offset_factors.add(m))[0]);
                    let units = _mm512_mul_ps(units, x_scale);
                    let dot = _mm512_load_ps(offsets.add(m * PANEL));
                    total = _mm512_fmadd_ps(dot, units, total);
                }
                _mm512_store_ps(sums.add(m * PANEL), total);
            }
        }
    }
}
