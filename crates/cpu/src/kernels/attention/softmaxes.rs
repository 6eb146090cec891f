//! Owns what is left of rows' scores while a context is walked through: their largest and the sum of their weights.

use super::block::TOGETHER;
#[cfg(target_arch = "x86_64")]
use crate::lanes::Floats;
#[cfg(target_arch = "x86_64")]
use std::ops::Range;

/// A softmax under way: the largest score so far and the sum of exponentials relative to it.
#[derive(Clone, Copy)]
pub struct Softmax {
    pub largest: f32,
    pub sum: f32,
}

/// Where nothing was added yet: below every score, and less itself it is 0.
pub const NOTHING: f32 = f32::MIN;

/// Softmaxes of rows, side by side: a register holds those of eight.
pub struct Softmaxes {
    pub(super) largest: Vec<f32>,
    pub(super) sum: Vec<f32>,
}

/// Rows that are taken together, in whole registers.
pub const ROOM: usize = TOGETHER.next_multiple_of(8);

impl Softmaxes {
    pub fn new(rows: usize) -> Softmaxes {
        // Registers read past the last.
        Softmaxes {
            largest: vec![NOTHING; rows + ROOM],
            sum: vec![0.0; rows + ROOM],
        }
    }

    /// Nothing was added to any of the first rows.
    pub fn clear(&mut self, rows: usize) {
        self.largest[..rows].fill(NOTHING);
        self.sum[..rows].fill(0.0);
    }

    pub fn get(&self, row: usize) -> Softmax {
        Softmax {
            largest: self.largest[row],
            sum: self.sum[row],
        }
    }

    pub fn put(&mut self, row: usize, softmax: Softmax) {
        self.largest[row] = softmax.largest;
        self.sum[row] = softmax.sum;
    }

    /// The largest scores and the sums of up to 16 rows.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn get_rows<F: Floats>(&self, first: usize) -> [F; 2] {
        const { assert!(F::WIDTH <= ROOM) };
        assert!(first + ROOM <= self.largest.len() && first + ROOM <= self.sum.len());
        // SAFETY: as many values of each are there.
        [&self.largest, &self.sum].map(|of_rows| unsafe { F::load(of_rows.as_ptr().add(first)) })
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn put_rows<F: Floats>(&mut self, rows: Range<usize>, [largest, sum]: [F; 2]) {
        const { assert!(F::WIDTH == 16) };
        for (all, of_rows) in [(largest, &mut self.largest), (sum, &mut self.sum)] {
            let mut values = [0.0; 16];
            // SAFETY: room for sixteen.
            unsafe { all.store(values.as_mut_ptr()) };
            of_rows[rows.clone()].copy_from_slice(&values[..rows.len()]);
        }
    }

    pub fn bytes(&self) -> usize {
        4 * (self.largest.len() + self.sum.len())
    }
}
