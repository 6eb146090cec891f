//! Owns what is known of each token id: its text, the bytes it contributes, whether it is special.

use std::collections::HashMap;

use crate::{TextError, byte_alphabet};

/// How far ids may go beyond twice the number of tokens. Models leave gaps of a few thousand before their added
/// tokens; a larger one is damage, and would cost memory for every id that is not there.
const SLACK: usize = 1 << 16;

/// How vocabulary entries spell bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// One printable character for each byte (GPT-2 and its heirs).
    ByteLevel,
    /// `▁` is a space and `<0x0A>` a byte (SentencePiece and its heirs). A run of bytes that is not UTF-8 is shown as
    /// far as it is; the reference library replaces every byte of such a run, which cannot be done while streaming.
    Metaspace,
    /// A word after a space, or what `prefix` marks as the rest of one (WordPiece). With `cleanup`, some punctuation
    /// has no space before it.
    WordPiece { prefix: String, cleanup: bool },
    /// Entries are the text itself.
    Literal,
}

/// What the first tokens of a whole text lose of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// This many spaces, as far as there are any: encoding had put them there.
    Spaces(usize),
    /// The first token its spaces, wherever they are in it.
    FirstTokenWithoutSpaces,
    /// The first token is shown as it is written, with its prefix and without a space.
    FirstTokenAsWritten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    /// Matched in the text before splitting, and spelled literally.
    Added,
    /// Added, and never produced from plain text.
    Special,
}

pub(crate) struct Vocabulary {
    entries: Vec<Option<Entry>>,
    ids: HashMap<String, u32>,
    /// How many tokens the file holds, which bounds their ids.
    expected: usize,
}

struct Entry {
    text: Box<str>,
    bytes: Box<[u8]>,
    special: bool,
}

impl Vocabulary {
    /// For a file with this many tokens.
    pub(crate) fn new(expected: usize) -> Self {
        Self {
            entries: Vec::new(),
            ids: HashMap::new(),
            expected,
        }
    }

    pub(crate) fn insert(
        &mut self,
        id: u32,
        text: String,
        kind: Kind,
        spelling: &Spelling,
    ) -> Result<(), TextError> {
        let index = id as usize;
        let limit = 2 * self.expected + SLACK;
        if index >= limit {
            return Err(TextError::BrokenVocabulary(format!(
                "token `{text}` has id {id}, the limit for {} tokens is {limit}",
                self.expected
            )));
        }
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        let bytes = match (kind, spelling) {
            (Kind::Added | Kind::Special, Spelling::ByteLevel) => text.as_bytes().to_vec(),
            _ => spelled_bytes(&text, spelling),
        };
        self.entries[index] = Some(Entry {
            text: text.as_str().into(),
            bytes: bytes.into(),
            special: kind == Kind::Special,
        });
        self.ids.insert(text, id);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        Some(&self.entry(id)?.text)
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        Some(&self.entry(id)?.bytes)
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.entry(id).is_some_and(|entry| entry.special)
    }

    pub(crate) fn id_of(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(crate) fn specials(&self) -> impl Iterator<Item = (u32, &str)> {
        let numbered = (0..).zip(&self.entries);
        numbered.filter_map(|(id, entry)| {
            entry
                .as_ref()
                .filter(|entry| entry.special)
                .map(|entry| (id, &*entry.text))
        })
    }

    fn entry(&self, id: u32) -> Option<&Entry> {
        self.entries.get(id as usize)?.as_ref()
    }
}

fn spelled_bytes(text: &str, spelling: &Spelling) -> Vec<u8> {
    let literal = || text.as_bytes().to_vec();
    match spelling {
        Spelling::ByteLevel => byte_alphabet::read(text).unwrap_or_else(literal),
        Spelling::Metaspace => match byte_token(text) {
            Some(byte) => vec![byte],
            None => text.replace('▁', " ").into_bytes(),
        },
        Spelling::WordPiece { prefix, cleanup } => match text.strip_prefix(prefix.as_str()) {
            Some(rest) => rest.as_bytes().to_vec(),
            None if *cleanup && joins_the_word_before(text) => literal(),
            None => format!(" {text}").into_bytes(),
        },
        Spelling::Literal => literal(),
    }
}

fn joins_the_word_before(text: &str) -> bool {
    let joining = [".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"];
    joining.iter().any(|start| text.starts_with(start))
}

/// The byte of an entry like `<0x0A>`.
fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let exact = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    exact.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str, kind: Kind, spelling: Spelling) -> Vec<u8> {
        let mut vocabulary = Vocabulary::new(1);
        vocabulary
            .insert(3, text.to_owned(), kind, &spelling)
            .unwrap();
        assert_eq!((vocabulary.len(), vocabulary.id_of(text)), (4, Some(3)));
        vocabulary.bytes(3).unwrap().to_vec()
    }

    #[test]
    fn spellings() {
        assert_eq!(bytes("Ġa", Kind::Normal, Spelling::ByteLevel), b" a");
        assert_eq!(
            bytes("Ġa", Kind::Added, Spelling::ByteLevel),
            "Ġa".as_bytes()
        );
        assert_eq!(bytes("▁a▁", Kind::Normal, Spelling::Metaspace), b" a ");
        assert_eq!(bytes("<0x0A>", Kind::Normal, Spelling::Metaspace), b"\n");
        assert_eq!(
            bytes("<0x+A>", Kind::Normal, Spelling::Metaspace),
            b"<0x+A>"
        );
        assert_eq!(bytes("▁▁", Kind::Added, Spelling::Metaspace), b"  ");
        assert_eq!(bytes("##a", Kind::Normal, Spelling::Literal), b"##a");
    }

    #[test]
    fn word_pieces() {
        let spelled = |text: &str, kind, cleanup| {
            let prefix = "##".to_owned();
            let bytes = bytes(text, kind, Spelling::WordPiece { prefix, cleanup });
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(spelled("the", Kind::Normal, true), " the");
        assert_eq!(spelled("##ing", Kind::Normal, true), "ing");
        assert_eq!(spelled("##.", Kind::Normal, true), ".");
        assert_eq!(spelled(",", Kind::Normal, true), ",");
        assert_eq!(spelled(",", Kind::Normal, false), " ,");
        assert_eq!(spelled("[SEP]", Kind::Special, true), " [SEP]");
    }

    #[test]
    fn ids_far_beyond_the_number_of_tokens_do_not_allocate() {
        let insert = |expected: usize, id: u32| {
            let mut vocabulary = Vocabulary::new(expected);
            let inserted = vocabulary.insert(id, "x".into(), Kind::Normal, &Spelling::Literal);
            let allocated = vocabulary.len();
            inserted.map(|()| allocated).map_err(|error| {
                assert_eq!(allocated, 0);
                error.to_string()
            })
        };
        assert!(insert(3, u32::MAX).unwrap_err().contains("4294967295"));
        let error = insert(3, 16_777_215).unwrap_err();
        assert!(error.contains("3 tokens is 65542"), "{error}");
        assert_eq!(insert(32_000, 128_256), Ok(128_257));
    }
}
