//! Owns products with packed weights: `out = x · Wᵀ (+ bias) (+ residual)` for a range of panels and all rows.

#[cfg(target_arch = "aarch64")]
mod arm;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
use self::arm::WidePanel as OwnRoom;
#[cfg(target_arch = "x86_64")]
use self::x86::Room as OwnRoom;
#[cfg(target_arch = "x86_64")]
pub use self::x86::{SUM_LOOP, TILE_LOOP};
use super::activations::QuantizedRows;
use crate::isa::Isa;
use crate::memory::Rows;
use crate::pack::PackedMatrix;
use mettle_plan::BackendError;
use std::ops::Range;

/// What the weights are multiplied with: quantized weights take quantized rows, dense weights take f32.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    Quantized(&'a QuantizedRows),
    /// The only row, which `Room::split` has seen before.
    One(&'a QuantizedRows),
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

/// What one thread works in.
pub struct Room(#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))] OwnRoom);

impl Room {
    /// For inputs of so many columns at the most.
    pub fn new(columns: usize) -> Result<Room, BackendError> {
        #[cfg(not(target_arch = "x86_64"))]
        let _ = columns;
        Ok(Room(
            #[cfg(target_arch = "x86_64")]
            OwnRoom::new(columns)?,
            #[cfg(target_arch = "aarch64")]
            OwnRoom::new()?,
        ))
    }

    /// Makes a row ready for `Input::One`, once for all its products.
    ///
    /// # Safety
    /// Nobody writes row 0 of `x` meanwhile.
    pub unsafe fn split(&mut self, isa: Isa, x: &QuantizedRows, columns: usize) {
        #[cfg(target_arch = "x86_64")]
        if isa != Isa::Scalar {
            // SAFETY: these are chosen only where the processor has them; the caller's promise.
            unsafe { self.0.split(x.row(0, columns), x.sums(0, columns)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (isa, x, columns);
    }

    pub fn bytes(&self) -> usize {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        return self.0.bytes();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        0
    }
}

impl Linear<'_> {
    /// Computes the columns of `panels` for all rows.
    ///
    /// # Safety
    /// `rows` rows of input, residual and output exist; nobody writes the input or touches these output columns meanwhile.
    pub unsafe fn run(&self, isa: Isa, panels: Range<usize>, room: &mut Room) {
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = room;
        match isa {
            // SAFETY: the caller's promise.
            Isa::Scalar => unsafe { scalar::run(self, panels) },
            // SAFETY: the caller's promise; these are chosen only where the processor has them.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 | Isa::Amx => unsafe {
                x86::run(self, isa, panels, &mut room.0)
            },
            // SAFETY: the same.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => unsafe {
                arm::run(self, isa, panels, &mut room.0)
            },
        }
    }

    /// Writes the sums of a row's columns from `first` on, bias and residual added in this order. Columns that only fill the
    /// last panel are left out.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn store<const N: usize>(&self, first: usize, row: usize, sums: &[f32; N]) {
        let Some(left) = self.weights.rows.checked_sub(first) else {
            return;
        };
        let count = N.min(left);
        let mut values = *sums;
        if let Some(bias) = self.bias {
            for i in 0..count {
                values[i] += bias[first + i];
            }
        }
        // Only these columns are borrowed: other threads write the others. Residual and output may be the same
        // columns, so the one borrow ends before the other starts.
        if let Some(residual) = &self.residual {
            // SAFETY: the caller's promise.
            let residual = unsafe { residual.columns(first, count).row(row) };
            for i in 0..count {
                values[i] += residual[i];
            }
        }
        // SAFETY: the caller's promise.
        let out = unsafe { self.out.columns(first, count).row_mut(row) };
        match out.first_chunk_mut::<N>() {
            // All of them are one store, not a call.
            Some(out) => *out = values,
            None => out.copy_from_slice(&values[..count]),
        }
    }
}

#[cfg(test)]
mod tests;
