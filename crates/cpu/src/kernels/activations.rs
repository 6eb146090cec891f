//! Owns the integer form of activations: 15 bits in blocks of 32 with one scale, each value in two signed bytes
//! (`128 * high + low`), and the sums that offsets in weights need.
//!
//! Eight bits would halve the multiplications, and cost the answer: on SmolLM2 (Q4_1) the next token's log-probability
//! then moves by 0.05 on average and 3 to 4 % of the most likely tokens change (simulated, 2 x 500 tokens); with 15 bits
//! this backend measures 0.0009 and 0.2 % at the worst of 4 x 500. ARCHITECTURE.md has the table.

use crate::isa::for_each_isa;
use crate::memory::AlignedBytes;
use crate::pack::BLOCK;
use mettle_plan::BackendError;

/// Room for quantized rows, allocated once for the largest step.
pub struct QuantizedRows {
    high: AlignedBytes,
    low: AlignedBytes,
    scales: AlignedBytes,
    sums: AlignedBytes,
    high_sums: AlignedBytes,
    low_sums: AlignedBytes,
    max_columns: usize,
}

/// The largest integer: 127 * 128, so that its high part is 127.
const LARGEST: f32 = 16_256.0;

/// One quantized row: `x[i] ~ (128 * high[i] + low[i]) * scales[i / 32]`.
#[derive(Clone, Copy)]
pub struct QuantizedRow<'a> {
    /// -127..=127.
    pub high: &'a [i8],
    /// -64..64.
    pub low: &'a [i8],
    /// One a block.
    pub scales: &'a [f32],
    /// Scale times the sum of the block's integers.
    pub sums: &'a [f32],
    /// The sums of every 16 high and low parts.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "AVX2 reads them")
    )]
    pub high_sums: &'a [i16],
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "AVX2 reads them")
    )]
    pub low_sums: &'a [i16],
}

impl QuantizedRow<'_> {
    /// The integer at `i`.
    pub fn integer(&self, i: usize) -> i32 {
        128 * self.high[i] as i32 + self.low[i] as i32
    }
}

struct QuantizedRowMut<'a> {
    high: &'a mut [i8],
    low: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [f32],
    high_sums: &'a mut [i16],
    low_sums: &'a mut [i16],
}

impl QuantizedRows {
    pub fn new(rows: usize, max_columns: usize) -> Result<QuantizedRows, BackendError> {
        let blocks = max_columns / BLOCK;
        // Too many rows saturate to a size that is refused.
        let room =
            |bytes| AlignedBytes::zeroed("quantized activations", rows.saturating_mul(bytes));
        Ok(QuantizedRows {
            high: room(blocks * BLOCK)?,
            low: room(blocks * BLOCK)?,
            scales: room(blocks * 4)?,
            sums: room(blocks * 4)?,
            high_sums: room(blocks * 4)?,
            low_sums: room(blocks * 4)?,
            max_columns: blocks * BLOCK,
        })
    }

    pub fn bytes(&self) -> usize {
        let parts = [
            &self.high,
            &self.low,
            &self.scales,
            &self.sums,
            &self.high_sums,
            &self.low_sums,
        ];
        parts.iter().map(|p| p.len()).sum()
    }

    /// # Safety
    /// No thread writes this row meanwhile.
    pub unsafe fn row(&self, row: usize, columns: usize) -> QuantizedRow<'_> {
        let (at, blocks) = self.place(row, columns);
        // SAFETY: `place` checked that the row is inside; nobody writes it.
        unsafe {
            QuantizedRow {
                high: part(&self.high, at * BLOCK, columns),
                low: part(&self.low, at * BLOCK, columns),
                scales: part(&self.scales, at, blocks),
                sums: part(&self.sums, at, blocks),
                high_sums: part(&self.high_sums, 2 * at, 2 * blocks),
                low_sums: part(&self.low_sums, 2 * at, 2 * blocks),
            }
        }
    }

    /// # Safety
    /// No other thread touches this row meanwhile.
    pub unsafe fn quantize(&self, isa: crate::isa::Isa, row: usize, x: &[f32]) {
        // SAFETY: the caller's promise.
        quantize_row(isa, x, unsafe { self.row_mut(row, x.len()) });
    }

    /// # Safety
    /// No other thread touches this row meanwhile.
    #[allow(clippy::mut_from_ref)]
    unsafe fn row_mut(&self, row: usize, columns: usize) -> QuantizedRowMut<'_> {
        let (at, blocks) = self.place(row, columns);
        // SAFETY: `place` checked that the row is inside; nobody else touches it.
        unsafe {
            QuantizedRowMut {
                high: part_mut(&self.high, at * BLOCK, columns),
                low: part_mut(&self.low, at * BLOCK, columns),
                scales: part_mut(&self.scales, at, blocks),
                sums: part_mut(&self.sums, at, blocks),
                high_sums: part_mut(&self.high_sums, 2 * at, 2 * blocks),
                low_sums: part_mut(&self.low_sums, 2 * at, 2 * blocks),
            }
        }
    }

    /// The row's first block and number of blocks; all six parts hold equally many rows.
    fn place(&self, row: usize, columns: usize) -> (usize, usize) {
        assert!(columns <= self.max_columns && columns.is_multiple_of(BLOCK));
        assert!((row + 1) * self.max_columns <= self.high.len());
        (row * (self.max_columns / BLOCK), columns / BLOCK)
    }
}

/// # Safety
/// Elements `start..start + len` of type `T` are inside `bytes` and nobody writes them meanwhile.
unsafe fn part<T>(bytes: &AlignedBytes, start: usize, len: usize) -> &[T] {
    // SAFETY: the caller's promise; any bits are a value of the integer and float types used here.
    unsafe { std::slice::from_raw_parts(bytes.base().cast::<T>().add(start), len) }
}

/// # Safety
/// As for `part`, and nobody else reads them either.
#[allow(clippy::mut_from_ref)]
unsafe fn part_mut<T>(bytes: &AlignedBytes, start: usize, len: usize) -> &mut [T] {
    // SAFETY: as in `part`.
    unsafe { std::slice::from_raw_parts_mut(bytes.base().cast::<T>().add(start), len) }
}

for_each_isa! {
    /// Rounds to the nearest of 32513 values between plus and minus the block's largest magnitude. A block with a value
    /// that is not finite gets a NaN scale, so that the mistake reaches the output instead of vanishing.
    fn quantize_row(x: &[f32], out: QuantizedRowMut<'_>) {
        for (b, x) in x.chunks_exact(BLOCK).enumerate() {
            // Magnitudes compare as integers, with infinities and NaN on top.
            let bits = x.iter().map(|v| v.to_bits() & 0x7fff_ffff).fold(0, u32::max);
            let largest = f32::from_bits(bits);
            // Below this LARGEST / largest would overflow.
            let (scale, inverse) = if bits >= 0x7f80_0000 {
                (f32::NAN, 0.0)
            } else if largest < 1e-30 {
                (0.0, 0.0)
            } else {
                (largest / LARGEST, LARGEST / largest)
            };
            let high = &mut out.high[b * BLOCK..(b + 1) * BLOCK];
            let low = &mut out.low[b * BLOCK..(b + 1) * BLOCK];
            for ((x, high), low) in x.iter().zip(high.iter_mut()).zip(low.iter_mut()) {
                // Infinity times zero is NaN, which converts to 0.
                let integer = (x * inverse).round_ties_even().clamp(-LARGEST, LARGEST) as i32;
                let upper = (integer + 64) >> 7;
                *high = upper as i8;
                *low = (integer - 128 * upper) as i8;
            }
            let mut total = 0;
            for half in 0..2 {
                let sum = |values: &[i8]| {
                    values[16 * half..16 * half + 16].iter().map(|v| *v as i32).sum::<i32>()
                };
                let (high, low) = (sum(high), sum(low));
                out.high_sums[2 * b + half] = high as i16;
                out.low_sums[2 * b + half] = low as i16;
                total += 128 * high + low;
            }
            out.scales[b] = scale;
            // At most 32 * 16256 < 2^24: exact as f32.
            out.sums[b] = scale * total as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    fn quantized(isa: Isa, x: &[f32]) -> (Vec<i32>, Vec<u32>, Vec<u32>, Vec<i16>) {
        let rows = QuantizedRows::new(2, x.len()).unwrap();
        // SAFETY: one thread.
        let row = unsafe {
            rows.quantize(isa, 1, x);
            rows.row(1, x.len())
        };
        let bits = |v: &[f32]| v.iter().map(|f| f.to_bits()).collect();
        (
            (0..x.len()).map(|i| row.integer(i)).collect(),
            bits(row.scales),
            bits(row.sums),
            [row.high_sums, row.low_sums].concat(),
        )
    }

    #[test]
    fn every_instruction_set_rounds_alike() {
        let x: Vec<f32> = (0..320)
            .map(|i| ((i * 7919 % 1000) as f32 - 500.0) * 0.01 * (i as f32).exp2().min(1e20))
            .collect();
        let reference = quantized(Isa::Scalar, &x);
        for isa in Isa::available() {
            assert_eq!(quantized(isa, &x), reference, "{isa}");
        }
        for (b, block) in x.chunks_exact(32).enumerate() {
            let scale = f32::from_bits(reference.1[b]);
            for (i, x) in block.iter().enumerate() {
                let error = (reference.0[32 * b + i] as f32 * scale - x).abs();
                assert!(error <= 0.501 * scale, "{x} is off by {error}");
            }
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
                let mut x = [1.0; 64];
                x[40] = bad;
                let (_, scales, ..) = quantized(isa, &x);
                assert!(f32::from_bits(scales[1]).is_nan(), "{isa} {bad}");
                assert!(f32::from_bits(scales[0]).is_finite());
            }
        }
        let (integers, scales, ..) = quantized(Isa::detect(), &[1e-38; 32]);
        assert_eq!((integers[0], scales[0]), (0, 0));
    }
}
