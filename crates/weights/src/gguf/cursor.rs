//! Owns the position inside the head of a GGUF file. Every read is checked against the bytes that are left.

use crate::error::{Result, WeightsError};

pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8]> {
        match usize::try_from(count) {
            Ok(n) if n <= self.left() => {
                let taken = &self.bytes[self.at..self.at + n];
                self.at += n;
                Ok(taken)
            }
            _ => Err(WeightsError::Truncated {
                what,
                at: self.at,
                needed: count,
                left: self.left(),
            }),
        }
    }

    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let taken = self.take(N as u64, what)?;
        Ok(taken.try_into().expect("take returns what was asked"))
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub fn string(&mut self, what: &'static str) -> Result<&'a str> {
        let length = self.u64(what)?;
        let at = self.at;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes)
            .map_err(|e| WeightsError::Malformed(format!("{what} at byte {at} is not UTF-8: {e}")))
    }

    /// Checks a count of things of at least `smallest` bytes each against the bytes left, so that room for them may
    /// be reserved.
    pub fn count(&self, count: u64, smallest: usize, what: &'static str) -> Result<usize> {
        match usize::try_from(count) {
            Ok(n) if n <= self.left() / smallest => Ok(n),
            _ => Err(WeightsError::Truncated {
                what,
                at: self.at,
                needed: count.saturating_mul(smallest as u64),
                left: self.left(),
            }),
        }
    }
}
