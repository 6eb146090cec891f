//! Owns a histogram with fixed buckets that one thread writes and any reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Seconds: of tokens and steps.
pub(super) const LATENCIES: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0,
    7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Seconds: of whole requests.
pub(super) const REQUEST_TIMES: &[f64] = &[
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
    60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
];
pub(super) const TOKENS: &[f64] = &[
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10_000.0,
    20_000.0,
    50_000.0,
    100_000.0,
    200_000.0,
    500_000.0,
    1_000_000.0,
];
/// Choices of a request.
pub(super) const COUNTS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Counts of values by bucket. One writer: a sum is read, added to and stored again.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last is for values above all.
    counts: Box<[AtomicU64]>,
    /// The bits of an f64.
    sum: AtomicU64,
}

/// What a histogram held when it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// The largest value of each bucket; one more bucket holds what is above all.
    pub bounds: &'static [f64],
    pub counts: Vec<u64>,
    pub sum: f64,
}

impl HistogramSnapshot {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        let sum = f64::from_bits(self.sum.load(Relaxed)) + value;
        self.sum.store(sum.to_bits(), Relaxed);
    }

    pub(crate) fn record_time(&self, time: Duration) {
        self.record(time.as_secs_f64());
    }

    pub(super) fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.counts.iter().map(|c| c.load(Relaxed)).collect(),
            sum: f64::from_bits(self.sum.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_inside_and_one_above_is_not() {
        let histogram = Histogram::new(&[1.0, 5.0]);
        for value in [0.0, 0.5, 1.0, 1.5, 5.0, 5.5, 1e9] {
            histogram.record(value);
        }
        histogram.record_time(Duration::from_millis(1500));
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.counts, [3, 3, 2]);
        assert_eq!(snapshot.count(), 8);
        assert_eq!(snapshot.sum, 1e9 + 15.0);
    }

    #[test]
    fn bounds_ascend() {
        for bounds in [LATENCIES, REQUEST_TIMES, TOKENS, COUNTS] {
            assert!(bounds.is_sorted());
        }
    }
}
