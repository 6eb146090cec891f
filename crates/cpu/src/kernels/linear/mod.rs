//! Owns products with packed weights: `out = x · Wᵀ (+ bias) (+ residual)` for a range of panels and all rows.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_quantized;
mod scalar;

use super::activations::QuantizedRows;
use crate::isa::Isa;
use crate::memory::Rows;
use crate::pack::{PANEL, PackedMatrix};
use std::ops::Range;

/// What the weights are multiplied with: quantized weights take quantized rows, dense weights take f32.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    Quantized(&'a QuantizedRows),
    Dense(Rows),
}

/// One product. `out` has a column per row of the weights.
#[derive(Clone, Copy)]
pub struct Linear<'a> {
    pub weights: &'a PackedMatrix,
    pub input: Input<'a>,
    pub bias: Option<&'a [f32]>,
    pub residual: Option<Rows>,
    pub out: Rows,
    pub rows: usize,
}

impl Linear<'_> {
    /// Computes the columns of `panels` for all rows.
    ///
    /// # Safety
    /// `rows` rows of input, residual and output exist; nobody writes the input or touches these output columns meanwhile.
    pub unsafe fn run(&self, isa: Isa, panels: Range<usize>) {
        match isa {
            // SAFETY: the caller's promise.
            Isa::Scalar => unsafe { scalar::run(self, panels) },
            // SAFETY: the caller's promise; AVX2 is chosen only where the processor has it.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::run(self, panels) },
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 => unreachable!("AVX2 is never chosen here"),
        }
    }

    /// Writes the sums of one panel and row, bias and residual added in this order.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn store(&self, panel: usize, row: usize, sums: &[f32; PANEL]) {
        let first = panel * PANEL;
        let count = PANEL.min(self.weights.rows - first);
        let mut values = *sums;
        let values = &mut values[..count];
        if let Some(bias) = self.bias {
            for (value, bias) in values.iter_mut().zip(&bias[first..]) {
                *value += bias;
            }
        }
        // Only this panel's columns are borrowed: other threads write the others. Residual and output may be the same
        // columns, so the one borrow ends before the other starts.
        if let Some(residual) = &self.residual {
            // SAFETY: the caller's promise.
            let residual = unsafe { residual.columns(first, count).row(row) };
            for (value, residual) in values.iter_mut().zip(residual) {
                *value += residual;
            }
        }
        // SAFETY: the caller's promise.
        let out = unsafe { self.out.columns(first, count).row_mut(row) };
        out.copy_from_slice(values);
    }
}

#[cfg(test)]
mod tests;
