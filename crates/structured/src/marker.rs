//! Owns finding a fixed text in characters that arrive one by one.

/// Holds back what may become the marker.
#[derive(Clone, Debug)]
pub(crate) struct MarkerFinder {
    marker: &'static str,
    /// Bytes of the marker that the text read so far ends with.
    matched: usize,
}

impl MarkerFinder {
    pub fn new(marker: &'static str) -> MarkerFinder {
        MarkerFinder { marker, matched: 0 }
    }

    /// True when `c` completes the marker. What turned out not to belong to one is added to `released`.
    pub fn feed(&mut self, c: char, released: &mut String) -> bool {
        loop {
            if self.marker[self.matched..].starts_with(c) {
                self.matched += c.len_utf8();
                let found = self.matched == self.marker.len();
                if found {
                    self.matched = 0;
                }
                return found;
            }
            if self.matched == 0 {
                released.push(c);
                return false;
            }
            let held = &self.marker[..self.matched];
            let shorter = held
                .char_indices()
                .skip(1)
                .map(|(start, _)| held.len() - start)
                .find(|length| self.marker.starts_with(&held[held.len() - length..]))
                .unwrap_or(0);
            released.push_str(&held[..held.len() - shorter]);
            self.matched = shorter;
        }
    }

    /// What is held back, at the end of the text.
    pub fn finish(&mut self, released: &mut String) {
        released.push_str(&self.marker[..self.matched]);
        self.matched = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_beginnings_are_found() {
        for (marker, text, before) in [
            ("aab", "aab", Some("")),
            ("aab", "aaab", Some("a")),
            ("aab", "xaacaab", Some("xaac")),
            ("abab", "ababa", Some("")),
            ("abac", "ababac", Some("ab")),
            ("aab", "xaa", None),
        ] {
            let mut finder = MarkerFinder::new(marker);
            let mut released = String::new();
            let found = text.chars().any(|c| finder.feed(c, &mut released));
            assert_eq!(found, before.is_some(), "{text}");
            finder.finish(&mut released);
            assert_eq!(released, before.unwrap_or(text), "{text}");
        }
    }
}
