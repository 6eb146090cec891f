//! Owns what random prompts are made of: ids of ordinary tokens where the server takes ids, else words whose cost in
//! tokens was measured.

use crate::random::Random;
use std::fmt::Write;

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    Ids(Vec<u32>),
}

/// One token each in most vocabularies, with the space before them.
const WORDS: [&str; 64] = [
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
    "home", "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right",
    "study", "book", "eye", "job", "word", "business", "issue", "side", "kind", "head", "house",
    "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law", "car",
];

#[derive(Clone, Debug, PartialEq)]
pub enum Material {
    /// Ids that ordinary text was tokenized to, so none of them is special.
    Ids(Vec<u32>),
    Words {
        tokens_per_word: f64,
        /// Tokens of a prompt without words: the template's, a beginning-of-text.
        overhead: f64,
    },
}

impl Material {
    /// A random piece of a prompt that counts `tokens`; words only about that.
    pub fn piece(&self, tokens: usize, random: &mut Random) -> Content {
        match self {
            Material::Ids(ids) => {
                let draw = |_| ids[random.below(ids.len())];
                Content::Ids((0..tokens).map(draw).collect())
            }
            Material::Words {
                tokens_per_word, ..
            } => {
                let count = (tokens as f64 / tokens_per_word).round() as usize;
                Content::Text(words(count, random))
            }
        }
    }

    /// A whole prompt: a shared beginning, then a piece of its own, `tokens` long together with what the server adds.
    pub fn prompt(&self, shared: Option<&Content>, tokens: usize, random: &mut Random) -> Content {
        let own = match self {
            Material::Ids(_) => tokens,
            Material::Words { overhead, .. } => {
                (tokens as f64 - overhead).round().max(1.0) as usize
            }
        };
        match (shared, self.piece(own, random)) {
            (Some(Content::Ids(first)), Content::Ids(rest)) => {
                Content::Ids(first.iter().copied().chain(rest).collect())
            }
            (Some(Content::Text(first)), Content::Text(rest)) => {
                Content::Text(format!("{first}{rest}"))
            }
            (_, own) => own,
        }
    }
}

/// Words with a space before each.
pub fn words(count: usize, random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..count.max(1) {
        let _ = write!(text, " {}", WORDS[random.below(WORDS.len())]);
    }
    text
}

/// Text that a tokenizer cuts into many different tokens, and that spells none of the special ones.
pub fn letters(count: usize, random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let length = 1 + random.below(7);
        for place in 0..length {
            let letter = b'a' + random.below(26) as u8;
            let is_capital = place == 0 && random.below(4) == 0;
            text.push(char::from(match is_capital {
                true => letter.to_ascii_uppercase(),
                false => letter,
            }));
        }
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_have_the_length_that_was_asked_for() {
        let mut random = Random::new(1);
        let ids = Material::Ids(vec![5, 6, 7]);
        let shared = ids.piece(4, &mut random);
        let Content::Ids(prompt) = ids.prompt(Some(&shared), 10, &mut random) else {
            panic!("ids make ids");
        };
        assert_eq!(prompt.len(), 14);
        assert_eq!(Content::Ids(prompt[..4].to_vec()), shared);
        assert!(prompt.iter().all(|id| (5..8).contains(id)));
        let words = Material::Words {
            tokens_per_word: 2.0,
            overhead: 10.0,
        };
        let Content::Text(text) = words.prompt(None, 110, &mut random) else {
            panic!("words make text");
        };
        assert_eq!(text.split_whitespace().count(), 50);
    }

    #[test]
    fn random_letters_are_plain_text() {
        let text = letters(1000, &mut Random::new(2));
        assert_eq!(text.split_whitespace().count(), 1000);
        assert!(text.chars().all(|c| c.is_ascii_alphabetic() || c == ' '));
    }
}
