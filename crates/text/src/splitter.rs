//! Owns splitting text by a pre-tokenizer's regular expression in linear time.
//!
//! All these expressions end in `\s+(?!\S)|\s+`: a run of whitespace without its last character
//! if a word follows. The look-ahead needs a backtracking engine, which gives up on (or takes
//! quadratic time for) megabytes of one character; so the rest of the expression runs on a finite
//! automaton and the look-ahead is applied to its matches here.

use std::ops::Range;

use regex_automata::meta::Regex;

const LOOKAHEAD_TAIL: &str = r"|\s+(?!\S)|\s+";

pub(crate) struct Splitter {
    regex: Regex,
    /// Pattern 1 of `regex` is the whitespace tail with its look-ahead.
    has_tail: bool,
    /// Whether the text between two matches is a piece of its own or dropped.
    keep_gaps: bool,
}

impl Splitter {
    /// `None` if the expression needs more than a finite automaton and the known tail.
    pub(crate) fn new(pattern: &str, keep_gaps: bool) -> Option<Self> {
        let (regex, has_tail) = match pattern.strip_suffix(LOOKAHEAD_TAIL) {
            Some(head) => (Regex::new_many(&[head, r"\s+"]), true),
            None => (Regex::new(pattern), false),
        };
        Some(Self {
            regex: regex.ok()?,
            has_tail,
            keep_gaps,
        })
    }

    pub(crate) fn split(&self, text: &str, mut piece: impl FnMut(Range<usize>)) {
        let mut input = regex_automata::Input::new(text);
        let mut done = 0;
        while input.start() <= text.len() {
            let Some(found) = self.regex.search(&input) else {
                break;
            };
            let mut range = found.range();
            if self.has_tail && found.pattern().as_usize() == 1 {
                range.end = end_before_word(text, range.clone());
            }
            if range.is_empty() {
                // An expression that can match nothing: step over one character.
                let step = text[range.end..].chars().next().map_or(1, char::len_utf8);
                input.set_start((range.end + step).min(text.len() + 1));
                continue;
            }
            if self.keep_gaps && done < range.start {
                piece(done..range.start);
            }
            done = range.end;
            piece(range);
            input.set_start(done);
        }
        if self.keep_gaps && done < text.len() {
            piece(done..text.len());
        }
    }
}

/// Where `\s+(?!\S)|\s+` ends on a maximal run of whitespace.
fn end_before_word(text: &str, run: Range<usize>) -> usize {
    if run.end == text.len() {
        return run.end;
    }
    let last = text[run.clone()].chars().next_back();
    let shorter = run.end - last.map_or(0, char::len_utf8);
    if shorter == run.start {
        run.end
    } else {
        shorter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'t>(splitter: &Splitter, text: &'t str) -> Vec<&'t str> {
        let mut out = Vec::new();
        splitter.split(text, |range| out.push(&text[range]));
        out
    }

    #[test]
    fn whitespace_keeps_its_last_character_for_the_word() {
        let words = Splitter::new(r" ?\w+|\s+(?!\S)|\s+", true).unwrap();
        assert_eq!(pieces(&words, "a  b   "), ["a", " ", " b", "   "]);
        assert_eq!(
            pieces(&words, "a\tb\t\tc"),
            ["a", "\t", "b", "\t", "\t", "c"]
        );
        assert_eq!(pieces(&words, ""), Vec::<&str>::new());
    }

    #[test]
    fn gaps_are_kept_or_dropped() {
        assert_eq!(
            pieces(&Splitter::new("[0-9]", true).unwrap(), "a12"),
            ["a", "1", "2"]
        );
        assert_eq!(
            pieces(&Splitter::new("[0-9]", false).unwrap(), "a12"),
            ["1", "2"]
        );
    }

    #[test]
    fn an_expression_that_matches_nothing_ends() {
        assert_eq!(
            pieces(&Splitter::new("x*", true).unwrap(), "äxxb"),
            ["ä", "xx", "b"]
        );
    }

    #[test]
    fn look_around_is_left_to_a_backtracking_engine() {
        assert!(Splitter::new(r"a(?=b)", true).is_none());
    }
}
