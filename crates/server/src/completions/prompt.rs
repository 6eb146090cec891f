//! Owns the four shapes of a prompt: a text, texts, token ids, lists of token ids.

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompts {
    Texts(Vec<String>),
    Ids(Vec<Vec<u32>>),
}

impl Prompts {
    pub const EXPECTED: &str =
        "a string, a list of strings, a list of token ids or a list of lists of token ids";

    pub fn len(&self) -> usize {
        match self {
            Prompts::Texts(texts) => texts.len(),
            Prompts::Ids(lists) => lists.len(),
        }
    }
}

/// One element of a list.
enum Item {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a token id or a list of token ids")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<Item, E> {
                u32::try_from(id).map(Item::Id).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = list.next_element()? {
                    ids.push(id);
                }
                Ok(Item::Ids(ids))
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prompts, D::Error> {
        struct PromptsVisitor;
        impl<'de> Visitor<'de> for PromptsVisitor {
            type Value = Prompts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Prompts::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
                Ok(Prompts::Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
                // The first element decides what the others must be; ids take 4 bytes each, not an `Item`.
                let mut texts = Vec::new();
                let mut ids = Vec::new();
                let mut lists = Vec::new();
                while let Some(item) = list.next_element()? {
                    match item {
                        Item::Text(text) => texts.push(text),
                        Item::Id(id) => ids.push(id),
                        Item::Ids(list) => lists.push(list),
                    }
                }
                match (texts.is_empty(), ids.is_empty(), lists.is_empty()) {
                    (false, true, true) => Ok(Prompts::Texts(texts)),
                    (true, false, true) => Ok(Prompts::Ids(vec![ids])),
                    (true, true, false) => Ok(Prompts::Ids(lists)),
                    _ => Err(A::Error::custom("an empty or mixed list")),
                }
            }
        }
        deserializer.deserialize_any(PromptsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_shapes_are_read_and_nothing_else() {
        let read = |json: &str| serde_json::from_str::<Prompts>(json).ok();
        let texts = |texts: &[&str]| Prompts::Texts(texts.iter().map(|t| (*t).into()).collect());
        assert_eq!(read(r#""hi""#), Some(texts(&["hi"])));
        assert_eq!(read(r#"["a", ""]"#), Some(texts(&["a", ""])));
        assert_eq!(read("[1, 2]"), Some(Prompts::Ids(vec![vec![1, 2]])));
        assert_eq!(
            read("[[1], [2, 3]]"),
            Some(Prompts::Ids(vec![vec![1], vec![2, 3]]))
        );
        for wrong in [
            "[]",
            "1",
            "{}",
            "true",
            r#"["a", 1]"#,
            "[1, [2]]",
            "[-1]",
            "[1.5]",
            "[4294967296]",
            "[[[1]]]",
            r#"[["a"]]"#,
            "[null]",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
