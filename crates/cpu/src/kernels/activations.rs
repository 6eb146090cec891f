//! Owns the integer form of activations: 15 bits in blocks of 32 with one scale, and the sums that offsets in weights
//! need.
//!
//! Eight bits would halve the multiplications, and cost the answer: on SmolLM2 (Q4_1) the next token's log-probability
//! then moves by 0.05 on average and 3 to 4 % of the most likely tokens change (simulated, 2 x 500 tokens); with 15 bits
//! this backend measures 0.0009 and 0.2 % at the worst of 4 x 500. ARCHITECTURE.md has the table.

#[cfg(target_arch = "x86_64")]
mod own_products;
#[cfg(target_arch = "x86_64")]
mod sixteen;
#[cfg(target_arch = "x86_64")]
pub mod tiles;

use super::order;
#[cfg(target_arch = "x86_64")]
use crate::isa::adds_beside_products;
use crate::isa::{Isa, for_each_isa};
use crate::memory::AlignedBytes;
use crate::pack::BLOCK;
use mettle_plan::BackendError;
#[cfg(target_arch = "x86_64")]
pub use own_products::is_of_sums;
#[cfg(target_arch = "x86_64")]
use std::ops::Range;
use std::sync::Arc;
#[cfg(target_arch = "x86_64")]
use tiles::TileRows;

/// 32 activations: `x[i] ~ integer(i) * scale`. All of a block lies together, so that a kernel needs one
/// pointer a row; and blocks are 76 bytes, so that rows do not fall on the same lines and banks of a cache (with 80, a
/// Zen 5 decodes 8 sequences 8 to 10 % slower).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QuantizedBlock {
    /// In the `order` that the processor's kernels read.
    pub integers: [i16; BLOCK],
    pub scale: f32,
    /// Scale times the sum of the integers.
    pub sum: f32,
    /// The sum of the products that the first pair of integers makes with the second, of all pairs of pairs that
    /// [`is_of_sums`]; where kernels take it.
    pub own_products: i32,
}

impl QuantizedBlock {
    /// The integer of a column.
    pub fn integer(&self, column: usize) -> i32 {
        order::get(&self.integers, column)
    }
}

/// The largest integer. Products with 13-bit weights, 32 of them added, stay below 2^31.
const LARGEST: f32 = 16_256.0;

/// A block without a larger magnitude is all zeros: [`LARGEST`] by it would overflow.
const LEAST: f32 = 1e-30;

/// Columns whose sums have one scale: a group of the types that have 16 offsets.
const GROUP: usize = 256;

/// Room for quantized rows, allocated once for the largest step.
pub struct QuantizedRows {
    data: Arc<AlignedBytes>,
    /// For types with 16 offsets a group: the sums of every 16 columns, 16 of them quantized as a block's first half.
    sums: Option<Arc<AlignedBytes>>,
    /// The same rows and sums once more, where kernels multiply tiles.
    #[cfg(target_arch = "x86_64")]
    tiles: Option<Arc<[TileRows; 2]>>,
    /// Whether blocks are written with their own products.
    #[cfg(target_arch = "x86_64")]
    has_own_products: bool,
    /// The row of the data that is row 0 here.
    first: usize,
    rows: usize,
    blocks_per_row: usize,
}

impl QuantizedRows {
    /// With or without the sums that 16 offsets a group take.
    pub fn new(
        rows: usize,
        max_columns: usize,
        with_sums: bool,
    ) -> Result<QuantizedRows, BackendError> {
        let blocks_per_row = max_columns / BLOCK;
        // Too many rows saturate to a size that is refused.
        let room = |blocks: usize| {
            let bytes = rows.saturating_mul(stride_of(blocks));
            AlignedBytes::zeroed("quantized activations", bytes).map(Arc::new)
        };
        Ok(QuantizedRows {
            data: room(blocks_per_row)?,
            sums: match with_sums {
                true => Some(room(max_columns / GROUP)?),
                false => None,
            },
            #[cfg(target_arch = "x86_64")]
            tiles: None,
            #[cfg(target_arch = "x86_64")]
            has_own_products: false,
            first: 0,
            rows,
            blocks_per_row,
        })
    }

    /// The same with what `isa` takes many rows in.
    pub fn for_many(
        isa: Isa,
        rows: usize,
        max_columns: usize,
        with_sums: bool,
    ) -> Result<QuantizedRows, BackendError> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut made = QuantizedRows::new(rows, max_columns, with_sums)?;
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Amx {
            let groups = if with_sums { max_columns / GROUP } else { 0 };
            made.tiles = Some(Arc::new([
                TileRows::new(rows, made.blocks_per_row)?,
                TileRows::new(rows, groups)?,
            ]));
        }
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx512 {
            made.has_own_products = adds_beside_products();
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = isa;
        Ok(made)
    }

    /// The same for kernels that multiply sums, or for those that do not, whatever this processor does faster.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub fn with_own_products(self, has_own_products: bool) -> QuantizedRows {
        QuantizedRows {
            has_own_products,
            ..self
        }
    }

    /// Whether kernels can multiply sums.
    #[cfg(target_arch = "x86_64")]
    pub fn has_own_products(&self) -> bool {
        self.has_own_products
    }

    pub fn bytes(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        let tiles = self.tiles.iter().flat_map(|both| both.iter());
        #[cfg(target_arch = "x86_64")]
        let tiles: usize = tiles.map(TileRows::bytes).sum();
        #[cfg(not(target_arch = "x86_64"))]
        let tiles = 0;
        self.data.len() + self.sums.as_ref().map_or(0, |sums| sums.len()) + tiles
    }

    /// The rows and their sums as tiles, if they were made for many, and the row of them that is row 0 here.
    #[cfg(target_arch = "x86_64")]
    pub fn tiles(&self) -> Option<(&[TileRows; 2], usize)> {
        Some((self.tiles.as_deref()?, self.first))
    }

    /// The same rows from `first` on.
    pub fn rows_behind(&self, first: usize) -> QuantizedRows {
        assert!(first <= self.rows);
        QuantizedRows {
            data: self.data.clone(),
            sums: self.sums.clone(),
            #[cfg(target_arch = "x86_64")]
            tiles: self.tiles.clone(),
            #[cfg(target_arch = "x86_64")]
            has_own_products: self.has_own_products,
            first: self.first + first,
            rows: self.rows - first,
            blocks_per_row: self.blocks_per_row,
        }
    }

    /// Copies a row of `columns` to another.
    ///
    /// # Safety
    /// No other thread touches row `to`, or writes row `from`, meanwhile.
    pub unsafe fn copy(&self, from: usize, to: usize, columns: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some((both, first)) = self.tiles() {
            assert!(from < self.rows && to < self.rows);
            let group = if self.sums.is_some() {
                GROUP
            } else {
                usize::MAX
            };
            for (tiles, columns_each) in both.iter().zip([BLOCK, group]) {
                // SAFETY: the caller's promise.
                unsafe { tiles.copy(first + from, first + to, columns / columns_each) };
            }
        }
        let sums = (self.sums_at(from, columns), self.sums_at(to, columns));
        let (from, to) = (self.place(from, columns), self.place(to, columns));
        // SAFETY: `place` checked that both rows are inside; the caller's promise. They may be the same.
        unsafe { std::ptr::copy(from, to, columns / BLOCK) };
        if let (Some(from), Some(to)) = sums {
            // SAFETY: the same.
            unsafe { std::ptr::copy(from, to, columns / GROUP) };
        }
    }

    /// # Safety
    /// No thread writes this row meanwhile.
    #[inline(always)]
    pub unsafe fn row(&self, row: usize, columns: usize) -> &[QuantizedBlock] {
        // SAFETY: `place` checked that the row is inside; any bits are a block; nobody writes it.
        unsafe { std::slice::from_raw_parts(self.place(row, columns), columns / BLOCK) }
    }

    /// The sums of every 16 columns that a type with so many `offsets` takes, a block for each group: none if it has not 16 a
    /// group. Panics if it has, and the rows were made without sums.
    ///
    /// # Safety
    /// As for `row`.
    #[inline(always)]
    pub unsafe fn sums_for(&self, offsets: usize, row: usize, columns: usize) -> &[QuantizedBlock] {
        if offsets < 16 {
            return &[];
        }
        assert!(self.sums.is_some(), "rows without sums");
        // SAFETY: the caller's promise.
        unsafe { self.sums(row, columns) }
    }

    /// The same, if there are any.
    ///
    /// # Safety
    /// As for `row`.
    #[inline(always)]
    pub unsafe fn sums(&self, row: usize, columns: usize) -> &[QuantizedBlock] {
        match self.sums_at(row, columns) {
            None => &[],
            // SAFETY: `sums_at` checked that they are inside; any bits are a block; nobody writes them.
            Some(sums) => unsafe { std::slice::from_raw_parts(sums, columns / GROUP) },
        }
    }

    /// The blocks of some rows.
    #[cfg(target_arch = "x86_64")]
    pub fn blocks_of(&self, rows: Range<usize>, columns: usize) -> RowsOfBlocks {
        assert!(rows.end <= self.rows);
        RowsOfBlocks {
            first: self.place(rows.start, columns),
            stride: stride_of(self.blocks_per_row),
        }
    }

    /// Their sums of every 16 columns, a block for each group. Panics if the rows were made without sums.
    #[cfg(target_arch = "x86_64")]
    pub fn sums_of(&self, rows: Range<usize>, columns: usize) -> RowsOfBlocks {
        assert!(rows.end <= self.rows);
        let first = self.sums_at(rows.start, columns);
        RowsOfBlocks {
            first: first.expect("rows without sums"),
            stride: stride_of(self.blocks_per_row / (GROUP / BLOCK)),
        }
    }

    /// # Safety
    /// No other thread touches this row meanwhile.
    pub unsafe fn quantize(&self, isa: Isa, row: usize, x: &[f32]) {
        let first = self.place(row, x.len());
        // SAFETY: `place` checked that the row is inside; any bits are a block; nobody else touches it.
        let out = unsafe { std::slice::from_raw_parts_mut(first, x.len() / BLOCK) };
        #[cfg(target_arch = "x86_64")]
        let done = by_sixteens(isa, x, out);
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0;
        quantize_row(isa, &x[done * BLOCK..], &mut out[done..]);
        // SAFETY: the caller's promise.
        unsafe { self.finish(isa, row, x.len(), done) };
    }

    /// Quantizes column `order[j]` of `x` as column `j`.
    ///
    /// # Safety
    /// As for `quantize`.
    pub unsafe fn quantize_in_order(&self, isa: Isa, row: usize, x: &[f32], order: &[u32]) {
        let first = self.place(row, order.len());
        for (b, order) in order.chunks_exact(BLOCK).enumerate() {
            let mut block = [0.0; BLOCK];
            for j in 0..BLOCK {
                block[j] = x[order[j] as usize];
            }
            // SAFETY: `place` checked that the row is inside; any bits are a block; nobody else touches it.
            let out = unsafe { &mut *first.add(b) };
            quantize_row(isa, &block, std::slice::from_mut(out));
        }
        // SAFETY: the caller's promise.
        unsafe { self.finish(isa, row, order.len(), 0) };
    }

    /// Makes what goes with a quantized row, whose first blocks are `done`: they have their own products.
    ///
    /// # Safety
    /// As for `quantize`.
    unsafe fn finish(&self, isa: Isa, row: usize, columns: usize, done: usize) {
        // SAFETY: the caller's promise; rows have tiles or their own products where the processor has AVX-512.
        unsafe {
            self.add_up(isa, row, columns);
            #[cfg(not(target_arch = "x86_64"))]
            let _ = done;
            #[cfg(target_arch = "x86_64")]
            if self.has_own_products {
                let blocks = self.place(row, columns).add(done);
                let count = columns / BLOCK - done;
                own_products::write(std::slice::from_raw_parts_mut(blocks, count));
            }
            #[cfg(target_arch = "x86_64")]
            if let Some(([rows, sums], first)) = self.tiles() {
                rows.write(first + row, self.row(row, columns));
                sums.write(first + row, self.sums(row, columns));
            }
        }
    }

    /// Makes the sums of a quantized row.
    ///
    /// # Safety
    /// As for `quantize`.
    unsafe fn add_up(&self, isa: Isa, row: usize, columns: usize) {
        let Some(sums) = self.sums_at(row, columns) else {
            return;
        };
        // SAFETY: the caller's promise.
        let blocks = unsafe { self.row(row, columns) };
        for (g, group) in blocks.chunks_exact(GROUP / BLOCK).enumerate() {
            let mut halves = [0.0; BLOCK];
            for (b, block) in group.iter().enumerate() {
                let first = block.scale * order::sum_of_first_half(&block.integers) as f32;
                halves[2 * b] = first;
                halves[2 * b + 1] = block.sum - first;
            }
            // SAFETY: `sums_at` checked that it is inside; any bits are a block; nobody else touches it.
            let out = unsafe { &mut *sums.add(g) };
            quantize_row(isa, &halves, std::slice::from_mut(out));
        }
    }

    /// The row's first block of sums.
    #[inline(always)]
    fn sums_at(&self, row: usize, columns: usize) -> Option<*mut QuantizedBlock> {
        let sums = self.sums.as_ref()?;
        let per_row = self.blocks_per_row / (GROUP / BLOCK);
        assert!(row < self.rows && columns / GROUP <= per_row);
        // SAFETY: just asserted to be inside.
        let first = unsafe {
            let row = sums.base().add((self.first + row) * stride_of(per_row));
            row.cast::<QuantizedBlock>()
        };
        Some(first)
    }

    /// The row's first block.
    #[inline(always)]
    fn place(&self, row: usize, columns: usize) -> *mut QuantizedBlock {
        assert!(columns.is_multiple_of(BLOCK) && columns / BLOCK <= self.blocks_per_row);
        assert!(row < self.rows);
        // SAFETY: just asserted to be inside.
        unsafe {
            let at = (self.first + row) * stride_of(self.blocks_per_row);
            self.data.base().add(at).cast::<QuantizedBlock>()
        }
    }
}

/// Bytes from one row of blocks to the next.
fn stride_of(blocks: usize) -> usize {
    blocks * size_of::<QuantizedBlock>()
}

/// Where the blocks of some rows lie.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct RowsOfBlocks {
    first: *const QuantizedBlock,
    stride: usize,
}

#[cfg(target_arch = "x86_64")]
impl RowsOfBlocks {
    /// Bytes from one row to the next.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// A block of the first row. It need not exist.
    #[inline(always)]
    pub fn of_first(&self, block: usize) -> *const QuantizedBlock {
        self.first.wrapping_add(block)
    }

    /// The same block of each of the first rows.
    #[inline(always)]
    pub fn at<const M: usize>(&self, block: usize) -> [*const QuantizedBlock; M] {
        let mut blocks = [self.of_first(block); M];
        for m in 0..M {
            blocks[m] = blocks[m].wrapping_byte_add(m * self.stride);
        }
        blocks
    }
}

/// Quantizes the first blocks, as many as whole sixteens are, and writes their own products. How many they are.
#[cfg(target_arch = "x86_64")]
fn by_sixteens(isa: Isa, x: &[f32], out: &mut [QuantizedBlock]) -> usize {
    if !isa.is_wide() {
        return 0;
    }
    let (blocks, _) = x.as_chunks::<BLOCK>();
    let (x, _) = blocks.as_chunks::<{ sixteen::BLOCKS }>();
    let (out, _) = out.as_chunks_mut::<{ sixteen::BLOCKS }>();
    for (x, out) in x.iter().zip(&mut *out) {
        // SAFETY: the processor has AVX-512.
        unsafe {
            if !sixteen::quantize(x, out) {
                quantize_row(isa, x.as_flattened(), out);
                own_products::write(out);
            }
        }
    }
    out.len() * sixteen::BLOCKS
}

for_each_isa! {
    /// Rounds to the nearest of 32513 values between plus and minus the block's largest magnitude. A block with a value
    /// that is not finite gets a NaN scale, so that the mistake reaches the output instead of vanishing.
    fn quantize_row<L>(x: &[f32], out: &mut [QuantizedBlock]) {
        assert_eq!(x.len(), out.len() * BLOCK, "a value for each place");
        let (least, most) = (L::splat(-LARGEST), L::splat(LARGEST));
        for b in 0..out.len() {
            let mut values = [L::splat(0.0); 4];
            for i in 0..4 {
                // SAFETY: the block is inside the row.
                values[i] = unsafe { L::load(x.as_ptr().add(b * BLOCK + 8 * i)) };
            }
            let bits = L::largest_magnitude(values);
            let largest = f32::from_bits(bits);
            let (scale, inverse) = if bits >= 0x7f80_0000 {
                values = [L::splat(0.0); 4];
                (f32::NAN, 0.0)
            } else if largest < LEAST {
                (0.0, 0.0)
            } else {
                (largest / LARGEST, LARGEST / largest)
            };
            for i in 0..4 {
                let rounded = values[i].mul(L::splat(inverse)).round();
                values[i] = most.smaller(least.larger(rounded));
            }
            let out = &mut out[b];
            // SAFETY: room for a block.
            let [first, last] = unsafe { L::store_integers(values, out.integers.as_mut_ptr()) };
            out.scale = scale;
            // At most 32 * 16256 < 2^24: exact as f32.
            out.sum = scale * (first + last) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    fn quantized(isa: Isa, x: &[f32]) -> (Vec<i32>, Vec<u32>, Vec<u32>) {
        let rows = QuantizedRows::new(2, x.len(), false).unwrap();
        // SAFETY: one thread.
        let row = unsafe {
            rows.quantize(isa, 1, x);
            rows.row(1, x.len())
        };
        let integers = (0..x.len()).map(|i| row[i / BLOCK].integer(i % BLOCK));
        (
            integers.collect(),
            row.iter().map(|b| b.scale.to_bits()).collect(),
            row.iter().map(|b| b.sum.to_bits()).collect(),
        )
    }

    #[test]
    fn every_instruction_set_rounds_alike() {
        // Two sixteens of blocks and a few more; in the second, one of zeros, one that is nearly, and one of very large ones.
        let mut x: Vec<f32> = (0..37 * 32)
            .map(|i| ((i * 7919 % 1000) as f32 - 500.0) * 0.01 * (i as f32).exp2().min(1e20))
            .collect();
        for (block, value) in [(17, 0.0), (20, 9e-31), (23, 1.1e-30), (30, -3e38)] {
            x[32 * block..32 * block + 32].fill(value);
        }
        x[32 * 30 + 5] = 1e38;
        let reference = quantized(Isa::Scalar, &x);
        for isa in Isa::available() {
            assert_eq!(quantized(isa, &x), reference, "{isa}");
        }
        for (b, block) in x.chunks_exact(32).enumerate() {
            let scale = f32::from_bits(reference.1[b]);
            let sum: i32 = reference.0[32 * b..32 * b + 32].iter().sum();
            assert_eq!(reference.2[b], (scale * sum as f32).to_bits());
            for (i, x) in block.iter().enumerate() {
                let error = (reference.0[32 * b + i] as f32 * scale - x).abs();
                let allowed = if x.abs() < LEAST {
                    LEAST
                } else {
                    0.501 * scale
                };
                assert!(error <= allowed, "{x} is off by {error}");
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn own_products_are_those_of_the_integers() {
        if !Isa::available().contains(&Isa::Avx512) {
            return;
        }
        let x: Vec<f32> = (0..19 * 32)
            .map(|i| (i * 7919 % 1000) as f32 - 500.0)
            .collect();
        let rows = QuantizedRows::new(1, x.len(), false).unwrap();
        let rows = rows.with_own_products(true);
        // SAFETY: one thread.
        let row = unsafe {
            rows.quantize(Isa::Avx512, 0, &x);
            rows.row(0, x.len())
        };
        for block in row {
            let product = |pair: usize| {
                let step = |i: usize| block.integers[4 * pair + i] as i32;
                step(0) * step(2) + step(1) * step(3)
            };
            let expected: i32 = (0..8).filter(|pair| is_of_sums(*pair)).map(product).sum();
            assert_eq!(block.own_products, expected);
        }
    }

    #[test]
    fn sums_of_every_16_columns_are_quantized_beside_a_row_and_go_with_it() {
        let (columns, x) = (512, |i: usize| ((i * 7919 % 1000) as f32 - 400.0) * 0.01);
        let x: Vec<f32> = (0..columns).map(x).collect();
        let order: Vec<u32> = (0..columns as u32).collect();
        for isa in Isa::available() {
            // Room for one group more, and a last part that is none.
            let rows = QuantizedRows::new(4, columns + GROUP + BLOCK, true).unwrap();
            // SAFETY: one thread.
            unsafe {
                rows.quantize(isa, 1, &x);
                rows.copy(1, 3, columns);
                rows.quantize_in_order(isa, 0, &x, &order);
                let behind = rows.rows_behind(1);
                for sums in [
                    rows.sums(1, columns),
                    rows.sums(3, columns),
                    rows.sums(0, columns),
                    behind.sums(0, columns),
                    behind.sums(2, columns),
                ] {
                    assert_eq!(sums.len(), 2);
                    for (i, x) in x.chunks_exact(16).enumerate() {
                        let sums = &sums[i / 16];
                        let truth: f64 = x.iter().map(|x| *x as f64).sum();
                        let error = sums.integer(i % 16) as f64 * sums.scale as f64 - truth;
                        // Half a step of its own, and at the worst of each activation.
                        let allowed = 0.501 * sums.scale as f64 + 16.0 * 0.501 * 6.0 / 16_256.0;
                        assert!(error.abs() <= allowed, "{isa} {i}: {error}");
                        assert_eq!(sums.integer(16 + i % 16), 0);
                    }
                }
            }
        }
        let rows = QuantizedRows::new(1, columns, true).unwrap();
        // SAFETY: one thread.
        unsafe {
            // Columns behind the last whole group are nobody's; zeros have no scale; what is not finite marks its group.
            rows.quantize(Isa::Scalar, 0, &x[..columns - BLOCK]);
            assert_eq!(rows.sums(0, columns - BLOCK).len(), 1);
            let mut x = vec![0.0; columns];
            x[300] = f32::NAN;
            rows.quantize(Isa::Scalar, 0, &x);
            let [zeros, marked] = rows.sums(0, columns) else {
                panic!("two groups");
            };
            assert_eq!((zeros.integer(0), zeros.scale), (0, 0.0));
            assert!(marked.scale.is_nan());
        }
    }

    #[test]
    #[should_panic(expected = "rows without sums")]
    fn rows_without_sums_are_refused_to_types_that_take_them() {
        let rows = QuantizedRows::new(1, 256, false).unwrap();
        // SAFETY: one thread.
        unsafe {
            rows.quantize(Isa::Scalar, 0, &[1.0; 256]);
            assert!(rows.sums_for(1, 0, 256).is_empty() && rows.sums(0, 256).is_empty());
            rows.sums_for(16, 0, 256);
        }
    }

    #[test]
    fn halves_round_to_even_and_extremes_stay_in_range() {
        let mut x = [0.0; 32];
        x[0] = 16_256.0;
        x[1] = 2.5;
        x[2] = -2.5;
        x[3] = -16_256.0;
        x[4] = 63.0;
        x[5] = 64.0;
        x[6] = -65.0;
        let (integers, ..) = quantized(Isa::detect(), &x);
        assert_eq!(&integers[..7], &[16_256, 2, -2, -16_256, 63, 64, -65]);
    }

    #[test]
    fn a_value_that_is_not_finite_marks_its_block() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for isa in Isa::available() {
                for (blocks, marked) in [(2, 1), (18, 0), (18, 15), (18, 16)] {
                    let mut x = vec![1.0; 32 * blocks];
                    x[32 * marked + 8] = bad;
                    let (_, scales, ..) = quantized(isa, &x);
                    for (block, scale) in scales.iter().enumerate() {
                        let is_nan = f32::from_bits(*scale).is_nan();
                        assert_eq!(is_nan, block == marked, "{isa} {bad} {block}");
                    }
                }
            }
        }
        let (integers, scales, ..) = quantized(Isa::detect(), &[1e-38; 32]);
        assert_eq!((integers[0], scales[0]), (0, 0));
    }
}
