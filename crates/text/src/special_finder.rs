//! Owns finding the places in a text where a special token starts, or may start.

use regex_automata::Input;
use regex_automata::meta::Regex;

pub(crate) struct SpecialFinder {
    texts: Vec<String>,
    /// All texts as one automaton: a scan costs the same for 5 or 1000 special tokens.
    any: Regex,
    longest: usize,
}

impl SpecialFinder {
    pub(crate) fn new(specials: impl Iterator<Item = String>) -> Result<Self, crate::TextError> {
        let texts: Vec<String> = specials.filter(|text| !text.is_empty()).collect();
        let patterns: Vec<String> = texts.iter().map(|text| escape(text)).collect();
        let any = Regex::new_many(&patterns).map_err(|error| {
            crate::TextError::BrokenVocabulary(format!("special tokens: {error}"))
        })?;
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        Ok(Self {
            texts,
            any,
            longest,
        })
    }

    /// Every position where a special token starts, and those from which the text could become
    /// one if another text were joined to its end, trimmed or not. In order, without repeats.
    pub(crate) fn starts(&self, text: &str) -> Vec<usize> {
        let mut starts = Vec::new();
        let mut input = Input::new(text);
        while let Some(found) = self.any.search(&input) {
            starts.push(found.start());
            let first = text[found.start()..]
                .chars()
                .next()
                .map_or(1, char::len_utf8);
            input.set_start(found.start() + first);
        }
        for text in [text, text.trim_end()] {
            starts.extend(self.unfinished(text));
        }
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    fn unfinished<'t>(&'t self, text: &'t str) -> impl Iterator<Item = usize> {
        let from = text.ceil_char_boundary(text.len().saturating_sub(self.longest));
        let positions = text[from..]
            .char_indices()
            .map(move |(offset, _)| from + offset);
        positions.filter(|position| {
            self.texts
                .iter()
                .any(|special| special.starts_with(&text[*position..]))
        })
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    for character in text.chars() {
        // `\<` and `\>` would mean word boundaries; bare, they are themselves.
        if character.is_ascii_punctuation() && !matches!(character, '<' | '>') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(text: &str) -> Vec<usize> {
        let specials = ["<|im_end|>", "<s>", "<s><s>", "[A.]", "é"];
        SpecialFinder::new(specials.iter().map(|text| (*text).to_owned()))
            .unwrap()
            .starts(text)
    }

    #[test]
    fn whole_overlapping_and_unfinished() {
        assert_eq!(starts("a<s>b<|im_end|>"), [1, 5]);
        assert_eq!(starts("<s><s><s>"), [0, 3, 6]);
        assert_eq!(starts("[A.][Ax] né"), [0, 10]);
        assert_eq!(starts("<|im <|im_"), [5]);
        assert_eq!(starts("<|im_  \n"), [0]);
        assert_eq!(starts(""), Vec::<usize>::new());
    }

    #[test]
    fn every_ascii_character_can_be_part_of_a_special_token() {
        let every: String = (1..128u8).map(char::from).collect();
        let finder = SpecialFinder::new(std::iter::once(every.clone())).unwrap();
        assert_eq!(finder.starts(&format!("x{every}y")), [1]);
    }

    #[test]
    fn without_special_tokens_nothing_is_found() {
        assert!(
            SpecialFinder::new(std::iter::empty())
                .unwrap()
                .starts("<s>")
                .is_empty()
        );
    }
}
