//! Owns finding the stop strings of an answer, where they do not count in its first tokens.

use crate::answer::AnswerOptions;
use mettle_text::{StopMatcher, StopOutcome, StopStrings};
use std::sync::Arc;

pub(crate) enum StopFinder {
    /// Every stop string counts, from the first token on.
    Anywhere(StopMatcher),
    Patient(PatientFinder),
}

impl StopFinder {
    /// `None` where there is nothing to find.
    pub fn new(options: &AnswerOptions) -> Option<StopFinder> {
        let (stops, include_stop) = (options.stop.clone(), options.include_stop);
        match (options.stop.is_empty(), options.min_tokens) {
            (true, _) => None,
            (false, 0) => Some(StopFinder::Anywhere(StopMatcher::new(stops, include_stop))),
            (false, _) => Some(StopFinder::Patient(PatientFinder::new(stops, include_stop))),
        }
    }

    /// Takes the next piece. A stop string that is complete in a piece that `counts` ends the text, wherever it started.
    pub fn push(&mut self, piece: &str, counts: bool) -> StopOutcome {
        match self {
            StopFinder::Anywhere(matcher) => matcher.push(piece),
            StopFinder::Patient(finder) => finder.push(piece, counts),
        }
    }

    /// The text ended without a stop string: what was held back.
    pub fn finish(self) -> String {
        match self {
            StopFinder::Anywhere(matcher) => matcher.finish(),
            StopFinder::Patient(finder) => finder.held,
        }
    }
}

/// Finds what `StopMatcher` finds, but goes on after a stop string that does not count: a longer one around it, or the
/// same one overlapping it, may be complete later. So each stop string has a matcher of its own, which starts anew when
/// its string was complete and did not count.
pub(crate) struct PatientFinder {
    stops: Vec<PatientStop>,
    include_stop: bool,
    /// The end of the text that may be the start of a stop string: the only part not shown yet.
    held: String,
}

struct PatientStop {
    strings: Arc<StopStrings>,
    matcher: StopMatcher,
    /// Bytes that its matcher holds back.
    held: usize,
    length: usize,
}

impl PatientStop {
    fn new(stop: &str) -> PatientStop {
        let strings = StopStrings::new([stop]).expect("it was a stop string already");
        let strings = Arc::new(strings);
        PatientStop {
            matcher: StopMatcher::new(strings.clone(), false),
            strings,
            held: 0,
            length: stop.len(),
        }
    }

    /// True where the piece, a character, completes the stop string.
    fn push(&mut self, piece: &str) -> bool {
        match self.matcher.push(piece) {
            StopOutcome::Text(shown) => {
                self.held = self.held + piece.len() - shown.len();
                false
            }
            StopOutcome::Stopped { .. } => true,
        }
    }

    /// Starts anew behind the stop string that `text` ends with: its end may be the start of the next one.
    fn restart(&mut self, text: &str) {
        let mut start = text.len() - self.length + 1;
        while !text.is_char_boundary(start) {
            start += 1;
        }
        self.matcher = StopMatcher::new(self.strings.clone(), false);
        self.held = 0;
        let again = self.push(&text[start..]);
        assert!(!again, "less than a stop string cannot hold it");
    }
}

impl PatientFinder {
    fn new(stops: Arc<StopStrings>, include_stop: bool) -> PatientFinder {
        let stops = (0..).map_while(|index| stops.get(index));
        PatientFinder {
            stops: stops.map(PatientStop::new).collect(),
            include_stop,
            held: String::new(),
        }
    }

    fn push(&mut self, piece: &str, counts: bool) -> StopOutcome {
        let mut shown = String::new();
        for (start, character) in piece.char_indices() {
            let character = &piece[start..start + character.len_utf8()];
            self.held.push_str(character);
            let complete = self.advance(character);
            if let Some((stop, length)) = complete.filter(|_| counts) {
                let cut = if self.include_stop { 0 } else { length };
                self.held.truncate(self.held.len() - cut);
                shown.push_str(&self.held);
                return StopOutcome::Stopped { text: shown, stop };
            }
            let keep = self.stops.iter().map(|stop| stop.held).max().unwrap_or(0);
            shown.extend(self.held.drain(..self.held.len() - keep));
        }
        StopOutcome::Text(shown)
    }

    /// The stop string that the character completes, the longest of several, and its length.
    fn advance(&mut self, character: &str) -> Option<(usize, usize)> {
        let mut complete: Option<(usize, usize)> = None;
        for (index, stop) in self.stops.iter_mut().enumerate() {
            if stop.push(character) {
                stop.restart(&self.held);
                if complete.is_none_or(|(_, longest)| stop.length > longest) {
                    complete = Some((index, stop.length));
                }
            }
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that is shown of the pieces, and the stop string that ended them; the first `early` pieces do not count.
    fn find(finder: &mut StopFinder, pieces: &[String], early: usize) -> (String, Option<usize>) {
        let mut shown = String::new();
        for (index, piece) in pieces.iter().enumerate() {
            match finder.push(piece, index >= early) {
                StopOutcome::Text(text) => shown.push_str(&text),
                StopOutcome::Stopped { text, stop } => return (shown + &text, Some(stop)),
            }
        }
        (shown, None)
    }

    /// By the definition: the first end of a stop string after the early pieces, the longest that ends there.
    fn expected(stops: &[String], text: &str, early: usize) -> Option<(usize, usize)> {
        let ends = (early + 1..=text.len()).filter(|end| text.is_char_boundary(*end));
        ends.into_iter().find_map(|end| {
            let complete = |(_, stop): &(usize, &String)| text[..end].ends_with(stop.as_str());
            let found = stops.iter().enumerate().filter(complete);
            let best = found.max_by_key(|(index, s)| (s.len(), std::cmp::Reverse(*index)));
            best.map(|(index, _)| (end, index))
        })
    }

    proptest! {
        #[test]
        fn stops_are_found_by_their_definition(
            stops in proptest::collection::vec("[abé]{1,4}", 1..4),
            pieces in proptest::collection::vec("[abcé]{0,5}", 0..10),
            early in 0..5usize,
            include_stop: bool,
        ) {
            let prepared = Arc::new(StopStrings::new(stops.clone()).unwrap());
            let patient = PatientFinder::new(prepared.clone(), include_stop);
            let mut patient = StopFinder::Patient(patient);
            let (shown, stop) = find(&mut patient, &pieces, early);
            let text = pieces.concat();
            let early_text = pieces.iter().take(early).map(String::len).sum();
            match expected(&stops, &text, early_text) {
                Some((end, index)) => {
                    let cut = if include_stop { 0 } else { stops[index].len() };
                    prop_assert_eq!((shown.as_str(), stop), (&text[..end - cut], Some(index)));
                }
                None => prop_assert_eq!((shown + &patient.finish(), stop), (text, None)),
            }
        }

        /// Piece by piece what the other one gives, where all pieces count.
        #[test]
        fn a_patient_finder_is_not_slower_to_show(
            stops in proptest::collection::vec("[ab]{1,4}", 1..4),
            pieces in proptest::collection::vec("[abc]{0,5}", 0..10),
            include_stop: bool,
        ) {
            let prepared = Arc::new(StopStrings::new(stops).unwrap());
            let mut matcher = StopMatcher::new(prepared.clone(), include_stop);
            let mut patient = PatientFinder::new(prepared, include_stop);
            for piece in pieces {
                let outcome = patient.push(&piece, true);
                prop_assert_eq!(&outcome, &matcher.push(&piece));
                if matches!(outcome, StopOutcome::Stopped { .. }) {
                    break;
                }
            }
        }
    }
}
