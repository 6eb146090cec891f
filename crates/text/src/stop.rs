//! Owns finding stop strings in a text that arrives in pieces.

use std::sync::Arc;

use crate::TextError;

/// The stop strings of one request, prepared for matching.
#[derive(Debug, Default)]
pub struct StopStrings {
    stops: Vec<Stop>,
}

#[derive(Debug)]
struct Stop {
    text: String,
    /// `fallback[n]`: after `n` matched bytes, the longest shorter match that may go on.
    fallback: Vec<usize>,
}

impl StopStrings {
    pub fn new<S: Into<String>>(stops: impl IntoIterator<Item = S>) -> Result<Self, TextError> {
        let stops = stops
            .into_iter()
            .map(|text| Stop::new(text.into()))
            .collect::<Result<_, _>>()?;
        Ok(Self { stops })
    }

    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&str> {
        Some(&self.stops.get(index)?.text)
    }
}

impl Stop {
    fn new(text: String) -> Result<Self, TextError> {
        if text.is_empty() {
            return Err(TextError::EmptyStop);
        }
        let mut fallback = vec![0; text.len() + 1];
        let mut matched = 0;
        for (position, byte) in text.bytes().enumerate().skip(1) {
            while matched > 0 && text.as_bytes()[matched] != byte {
                matched = fallback[matched];
            }
            matched += usize::from(text.as_bytes()[matched] == byte);
            fallback[position + 1] = matched;
        }
        Ok(Self { text, fallback })
    }

    /// How many bytes of the stop string match after one more byte of text.
    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.text.as_bytes()[matched] != byte {
            matched = self.fallback[matched];
        }
        matched + usize::from(self.text.as_bytes()[matched] == byte)
    }
}

/// What a piece of text led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// Nothing found: this text is safe to show.
    Text(String),
    /// The text ends here: what is left to show, and the index of the stop string found.
    Stopped { text: String, stop: usize },
}

/// Holds back text that may be the start of a stop string. The first stop string to be complete
/// ends the text (of two that end at the same place, the longer), however the text is cut.
#[derive(Debug)]
pub struct StopMatcher {
    stops: Arc<StopStrings>,
    include_stop: bool,
    held: String,
    /// For each stop string, how many of its bytes the held text ends with.
    matched: Vec<usize>,
    stopped: bool,
}

impl StopMatcher {
    /// `include_stop`: the text shown includes the stop string.
    pub fn new(stops: Arc<StopStrings>, include_stop: bool) -> Self {
        let matched = vec![0; stops.stops.len()];
        Self {
            stops,
            include_stop,
            held: String::new(),
            matched,
            stopped: false,
        }
    }

    /// Takes the next piece. After a stop nothing is shown any more.
    pub fn push(&mut self, piece: &str) -> StopOutcome {
        if self.stopped {
            return StopOutcome::Text(String::new());
        }
        let already = self.held.len();
        self.held.push_str(piece);
        for (position, byte) in piece.bytes().enumerate() {
            for (stop, matched) in self.stops.stops.iter().zip(&mut self.matched) {
                *matched = stop.advance(*matched, byte);
            }
            if let Some((stop, length)) = self.complete() {
                let end = already + position + 1;
                let shown = if self.include_stop { end } else { end - length };
                self.stopped = true;
                self.held.truncate(shown);
                return StopOutcome::Stopped {
                    text: std::mem::take(&mut self.held),
                    stop,
                };
            }
        }
        let keep = self.matched.iter().copied().max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        StopOutcome::Text(std::mem::replace(&mut self.held, rest))
    }

    /// The text ended without a stop string: what was held back.
    pub fn finish(self) -> String {
        self.held
    }

    fn complete(&self) -> Option<(usize, usize)> {
        let lengths = self.stops.stops.iter().map(|stop| stop.text.len());
        let complete = lengths
            .zip(&self.matched)
            .enumerate()
            .filter(|(_, (length, matched))| length == *matched);
        complete
            .map(|(index, (length, _))| (index, length))
            .max_by_key(|(index, length)| (*length, std::cmp::Reverse(*index)))
    }
}
