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
        let last = (first + PANEL).min(self.weights.rows);
        // SAFETY: the caller's promise.
        let out = &mut unsafe { self.out.row_mut(row) }[first..last];
        for (i, o) in out.iter_mut().enumerate() {
            let mut value = sums[i];
            if let Some(bias) = self.bias {
                value += bias[first + i];
            }
            if let Some(residual) = &self.residual {
                // SAFETY: the caller's promise; where residual and out are one buffer, this element is read before it is written.
                value += unsafe { residual.row(row) }[first + i];
            }
            *o = value;
        }
    }
}

#[cfg(test)]
mod tests;
