//! Owns how hidden states become one vector: which positions count, and their sum as chunks of the prompt are computed.

use crate::error::EngineError;

/// Which hidden states (after the model's last norm) make the vector of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The last token's: the only one that has seen the whole text.
    Last,
    /// The mean over all tokens.
    Mean,
    /// The first token's, `[CLS]`: in an encoder it has seen the whole text too.
    First,
}

/// A vector as it grows. Positions are added one by one in their order, so the sum does not depend on chunks.
#[derive(Debug)]
pub(crate) struct Pool {
    pooling: Pooling,
    /// Positions below are in the sums, or not wanted.
    next: usize,
    /// In f64: a mean over a long text keeps every digit of its f32 parts.
    sums: Vec<f64>,
}

impl Pool {
    pub fn new(pooling: Pooling, prompt: usize) -> Pool {
        Pool {
            pooling,
            next: match pooling {
                Pooling::Last => prompt - 1,
                Pooling::Mean | Pooling::First => 0,
            },
            sums: Vec::new(),
        }
    }

    /// Whether every position has to be computed: what the cache holds has no hidden state.
    pub fn needs_all(&self) -> bool {
        self.pooling != Pooling::Last
    }

    /// After a preemption positions are computed again that are in the sums already.
    pub fn wants(&self, position: usize) -> bool {
        match self.pooling {
            Pooling::Last | Pooling::Mean => position >= self.next,
            Pooling::First => position == 0 && self.next == 0,
        }
    }

    pub fn add(&mut self, position: usize, row: &[f32]) -> Result<(), EngineError> {
        assert_eq!(position, self.next, "positions are computed in order");
        self.next += 1;
        if let Some(column) = row.iter().position(|value| !value.is_finite()) {
            let position = position as u64;
            return Err(EngineError::BadHidden { column, position });
        }
        self.sums.resize(row.len(), 0.0);
        for (sum, value) in self.sums.iter_mut().zip(row) {
            *sum += f64::from(*value);
        }
        Ok(())
    }

    /// The vector, once the last position is in.
    pub fn vector(&self) -> Vec<f32> {
        let count = match self.pooling {
            Pooling::Last | Pooling::First => 1,
            Pooling::Mean => self.next,
        };
        let mean = |sum: &f64| (sum / count as f64) as f32;
        self.sums.iter().map(mean).collect()
    }
}
