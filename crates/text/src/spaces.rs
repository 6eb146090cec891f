//! Owns how SentencePiece writes the spaces of a text: as `▁`, with one put before the text, with runs of them kept or not.

/// What a vocabulary writes for a space.
pub(crate) const SPACE: char = '▁';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spaces {
    /// A space goes before every stretch of text between special tokens, also before one that starts with a space.
    /// That is what SentencePiece, llama.cpp and the `tokenizer.json` files of this family do; the Llama class of
    /// transformers 5 adds it only at the start of the whole text, and not before a space, which loses that space.
    pub(crate) prefix: bool,
    pub(crate) runs: Runs,
}

/// What happens to runs of spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Kept,
    /// A run counts as one space, and none is left at the end (SentencePiece's `remove_extra_whitespaces`).
    Single,
    /// The same for whitespace of any sort, and every word goes to the model alone: what transformers does for T5.
    Words,
}

impl Spaces {
    /// Hands the model's view of `text` to `piece`, in one part or word by word.
    pub(crate) fn split(&self, text: &str, mut piece: impl FnMut(&str)) {
        let mut written = String::with_capacity(text.len() + SPACE.len_utf8());
        match self.runs {
            Runs::Kept => {
                if self.prefix && !text.is_empty() {
                    written.push(SPACE);
                }
                written.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
            }
            Runs::Single => {
                let words = text.split(' ').filter(|word| !word.is_empty());
                for (index, word) in words.enumerate() {
                    if self.prefix || index > 0 {
                        written.push(SPACE);
                    }
                    written.push_str(word);
                }
            }
            Runs::Words => {
                for (index, word) in text.split_whitespace().enumerate() {
                    let joined = index == 0 && !self.prefix;
                    for part in parts(word) {
                        written.clear();
                        if !part.starts_with(SPACE) && !joined {
                            written.push(SPACE);
                        }
                        written.push_str(part);
                        piece(&written);
                    }
                }
                return;
            }
        }
        if !written.is_empty() {
            piece(&written);
        }
    }
}

/// A word that contains the sign for a space itself is cut before each one.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let next = rest[first.len_utf8()..].find(SPACE);
        let end = next.map_or(rest.len(), |next| first.len_utf8() + next);
        let part;
        (part, rest) = rest.split_at(end);
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(prefix: bool, runs: Runs, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        Spaces { prefix, runs }.split(text, |piece| out.push(piece.to_owned()));
        out
    }

    #[test]
    fn kept() {
        assert_eq!(split(true, Runs::Kept, " a  b "), ["▁▁a▁▁b▁"]);
        assert_eq!(split(false, Runs::Kept, " a  b "), ["▁a▁▁b▁"]);
        assert_eq!(split(true, Runs::Kept, "▁a\n"), ["▁▁a\n"]);
        assert!(split(true, Runs::Kept, "").is_empty());
    }

    #[test]
    fn single() {
        assert_eq!(split(true, Runs::Single, "  a  b\n "), ["▁a▁b\n"]);
        assert_eq!(split(false, Runs::Single, "  a  b "), ["a▁b"]);
        assert!(split(true, Runs::Single, "  ").is_empty());
    }

    #[test]
    fn words() {
        assert_eq!(split(true, Runs::Words, " a \n b "), ["▁a", "▁b"]);
        assert_eq!(split(false, Runs::Words, " a b"), ["a", "▁b"]);
        assert_eq!(
            split(true, Runs::Words, "a▁b ▁c ▁▁"),
            ["▁a", "▁b", "▁c", "▁", "▁"]
        );
        assert!(split(true, Runs::Words, " \n").is_empty());
    }
}
