//! Owns a WordPiece vocabulary as GGUF stores it, and turns it into the parts of a tokenizer.

use std::collections::HashMap;

use crate::TextError;
use crate::pipeline::{AddedEntry, Pipeline, WordParts};
use crate::sentence_pieces::PieceKind;
use crate::spaces::SPACE;
use crate::vocabulary::{Kind, Spelling, Vocabulary};

pub(crate) struct WordPieces {
    /// In BERT's own spelling, with `##` before what continues a word.
    tokens: Vec<(String, Kind)>,
    pub(crate) unknown: u32,
    pub(crate) lowercase: bool,
}

const CONTINUES: &str = "##";
/// The type of the placeholders that fill a table's last rows.
const UNUSED: i32 = 5;

impl WordPieces {
    pub(crate) fn from_gguf(
        tokens: Vec<String>,
        types: &[i32],
        unknown: Option<u32>,
    ) -> Result<Self, TextError> {
        // Converters mark the start of a word instead of its continuation; a file that does not is in BERT's spelling.
        let marks_starts = tokens.iter().any(|text| text.starts_with(SPACE));
        let mut spelled = Vec::with_capacity(tokens.len());
        for (index, text) in tokens.into_iter().enumerate() {
            let number = types.get(index).copied().unwrap_or(1);
            let kind = match PieceKind::of(i64::from(number), index)? {
                PieceKind::Control | PieceKind::Unknown => Kind::Special,
                PieceKind::UserDefined => Kind::Added,
                PieceKind::Normal if is_role(&text) => Kind::Special,
                _ => Kind::Normal,
            };
            let text = match marks_starts && kind == Kind::Normal {
                true => bert_spelling(text),
                false => text,
            };
            spelled.push((text, kind));
        }
        let named = || spelled.iter().position(|(text, _)| text == "[UNK]");
        let unknown = unknown.or_else(|| named().map(|index| index as u32));
        let Some(unknown) = unknown else {
            return Err(TextError::BrokenVocabulary(format!(
                "{} tokens, but none for unknown words",
                spelled.len()
            )));
        };
        // Older files do not say whether case matters. Where it does not, no word has capitals.
        let words = spelled.iter().enumerate();
        let words = words.filter(|(_, (_, kind))| *kind == Kind::Normal);
        let words = words.filter(|(index, _)| types.get(*index) != Some(&UNUSED));
        let words = words.filter(|(_, (text, _))| !text.starts_with("[unused"));
        let mut letters = words.flat_map(|(_, (text, _))| text.bytes());
        let lowercase = !letters.any(|byte| byte.is_ascii_uppercase());
        Ok(Self {
            tokens: spelled,
            unknown,
            lowercase,
        })
    }

    pub(crate) fn id_of(&self, text: &str) -> Option<u32> {
        let mut tokens = self.tokens.iter();
        let position = tokens.position(|(token, _)| token == text);
        position.map(|index| index as u32)
    }

    pub(crate) fn build(self) -> Result<(Pipeline, Vocabulary), TextError> {
        let spelling = Spelling::WordPiece {
            prefix: CONTINUES.to_owned(),
            cleanup: true,
        };
        let unknown = self.tokens[self.unknown as usize].0.clone();
        let mut vocabulary = Vocabulary::new(self.tokens.len());
        let mut parts = WordParts {
            tokens: HashMap::with_capacity(self.tokens.len()),
            unknown,
            added: Vec::new(),
            lowercase: self.lowercase,
        };
        for ((text, kind), id) in self.tokens.into_iter().zip(0..) {
            if kind != Kind::Normal {
                parts.added.push(AddedEntry {
                    text: text.clone(),
                    id,
                    special: kind == Kind::Special,
                });
            }
            // A control token must stay out of reach of words that are spelled like it.
            if kind != Kind::Special || id == self.unknown {
                parts.tokens.insert(text.clone(), id);
            }
            vocabulary.insert(id, text, kind, &spelling)?;
        }
        Ok((Pipeline::from_word_parts(parts)?, vocabulary))
    }
}

/// Older converters gave no type to the tokens with a role.
fn is_role(text: &str) -> bool {
    ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"].contains(&text)
}

fn bert_spelling(text: String) -> String {
    // Placeholders for words that somebody may add are left as they are.
    let placeholder = text.starts_with("[unused") && text.ends_with(']');
    match text.strip_prefix(SPACE) {
        Some(start) => start.to_owned(),
        None if placeholder => text,
        None => format!("{CONTINUES}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_give_berts() {
        let spelled = |tokens: &[&str]| -> Vec<String> {
            let tokens = tokens.iter().map(|text| (*text).to_owned()).collect();
            let words = WordPieces::from_gguf(tokens, &[], None).unwrap();
            words.tokens.into_iter().map(|(text, _)| text).collect()
        };
        let bert = ["[UNK]", "[unused1]", "[CLS]", "the", "##s", "[", "##["];
        let marked = ["[UNK]", "[unused1]", "[CLS]", "▁the", "s", "▁[", "["];
        assert_eq!(spelled(&bert), bert);
        assert_eq!(spelled(&marked), bert);
    }

    #[test]
    fn capitals_of_placeholders_mean_nothing() {
        let tokens = ["[UNK]", "▁the", "▁[PAD2]"].map(str::to_owned).to_vec();
        let lowercase = |types| {
            let words = WordPieces::from_gguf(tokens.clone(), types, None);
            words.unwrap().lowercase
        };
        assert!(lowercase(&[3, 1, UNUSED]));
        assert!(!lowercase(&[3, 1, 1]));
    }

    #[test]
    fn capitals_in_words_mean_that_case_matters() {
        let lowercase = |token: &str| {
            let tokens = ["[UNK]", "[MASK]", token].map(str::to_owned).to_vec();
            let words = WordPieces::from_gguf(tokens, &[3, 3, 1], None).unwrap();
            words.lowercase
        };
        assert!(lowercase("▁the"));
        assert!(!lowercase("▁The"));
    }

    #[test]
    fn a_vocabulary_without_unknown_is_refused() {
        let error = WordPieces::from_gguf(vec!["▁a".to_owned()], &[], None).err();
        let error = error.expect("no [UNK]").to_string();
        assert!(
            error.contains("1 tokens, but none for unknown words"),
            "{error}"
        );
    }
}
