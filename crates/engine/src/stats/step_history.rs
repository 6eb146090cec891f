//! Owns the last steps: how long each took and how much was in it.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

/// Steps that are remembered.
const LENGTH: usize = 512;

/// One step of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// Counted from the engine's start.
    pub number: u64,
    /// From scheduling to the last token made.
    pub time: Duration,
    pub tokens: u32,
    pub sequences: u32,
}

/// A ring that one thread writes and any reads. A record is one word, so no reader sees half of one.
#[derive(Debug)]
pub(super) struct StepHistory {
    /// Microseconds (32 bits, enough for an hour), tokens (20 bits), sequences (12 bits).
    records: Box<[AtomicU64]>,
    count: AtomicU64,
}

const TOKEN_LIMIT: u64 = (1 << 20) - 1;
const SEQUENCE_LIMIT: u64 = (1 << 12) - 1;

impl StepHistory {
    pub fn new() -> StepHistory {
        StepHistory {
            records: (0..LENGTH).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
        }
    }

    /// Steps so far.
    pub fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Sizes beyond what a record holds count as the most that it holds.
    pub fn push(&self, time: Duration, tokens: usize, sequences: usize) {
        let time = time.as_micros().min(u128::from(u32::MAX)) as u64;
        let tokens = (tokens as u64).min(TOKEN_LIMIT);
        let sequences = (sequences as u64).min(SEQUENCE_LIMIT);
        let count = self.count.load(Relaxed);
        let record = time << 32 | tokens << 12 | sequences;
        self.records[count as usize % LENGTH].store(record, Relaxed);
        self.count.store(count + 1, Release);
    }

    /// Oldest first. The oldest may be missing: the writer goes on while this is read.
    pub fn recent(&self) -> Vec<StepRecord> {
        let end = self.count();
        let start = end.saturating_sub(LENGTH as u64);
        let numbers = start..end;
        let records: Vec<StepRecord> = numbers
            .map(|number| {
                let record = self.records[number as usize % LENGTH].load(Relaxed);
                StepRecord {
                    number,
                    time: Duration::from_micros(record >> 32),
                    tokens: (record >> 12 & TOKEN_LIMIT) as u32,
                    sequences: (record & SEQUENCE_LIMIT) as u32,
                }
            })
            .collect();
        // Whatever the writer may have written over meanwhile, the one it is at included.
        let lost = (self.count() + 1).saturating_sub(start + LENGTH as u64);
        records.into_iter().skip(lost as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_steps_are_kept_in_order() {
        let history = StepHistory::new();
        assert_eq!(history.recent(), []);
        for step in 0..LENGTH + 10 {
            history.push(Duration::from_micros(step as u64), step, 1 + step % 7);
        }
        let recent = history.recent();
        // One less than the ring holds: the writer may be about to replace the oldest.
        assert_eq!(recent.len(), LENGTH - 1);
        for (record, step) in recent.iter().zip(11..) {
            let expected = StepRecord {
                number: step,
                time: Duration::from_micros(step),
                tokens: step as u32,
                sequences: 1 + (step % 7) as u32,
            };
            assert_eq!(*record, expected);
        }
    }

    #[test]
    fn sizes_beyond_a_record_are_cut_to_it() {
        let history = StepHistory::new();
        history.push(Duration::from_secs(1 << 40), 1 << 30, 1 << 30);
        let record = history.recent()[0];
        assert_eq!(record.time, Duration::from_micros(u64::from(u32::MAX)));
        assert_eq!((record.tokens, record.sequences), ((1 << 20) - 1, 4095));
    }
}
