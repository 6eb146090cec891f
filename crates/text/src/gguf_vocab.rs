//! Owns the vocabulary as a GGUF file stores it, and what a byte-level BPE tokenizer needs of it.

use std::collections::HashMap;

use crate::pipeline::{AddedEntry, BytePairs};
use crate::vocabulary::{Kind, Spelling, Vocabulary};
use crate::{TextError, pretokenizer};

/// The `tokenizer.ggml.*` keys of a GGUF file.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`
    pub model: String,
    pub pre: Option<String>,
    pub tokens: Vec<String>,
    /// One for each token, or empty: all normal.
    pub token_types: Vec<i32>,
    pub merges: Vec<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub padding: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    /// Read by nothing here, whatever it says: it speaks of SentencePiece vocabularies, which put a space before a
    /// text. The byte-level BPE of every supported `model` never does, also where a converter wrote the key.
    pub add_space_prefix: Option<bool>,
}

const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

impl GgufVocab {
    pub(crate) fn into_byte_pairs(self) -> Result<(BytePairs, Vocabulary), TextError> {
        if self.model != "gpt2" {
            return Err(TextError::UnsupportedModel {
                model: self.model,
                supported: "gpt2 (byte-level BPE)",
            });
        }
        let pre = pretokenizer::named(self.pre.as_deref())?;
        self.check_lengths()?;

        let mut vocabulary = Vocabulary::new(self.tokens.len());
        let mut pairs = BytePairs {
            tokens: HashMap::with_capacity(self.tokens.len()),
            merges: Vec::with_capacity(self.merges.len()),
            added: Vec::new(),
            patterns: pre.patterns,
            ignore_merges: pre.ignore_merges,
            compose: pre.compose,
        };
        for (index, text) in self.tokens.into_iter().enumerate() {
            let id = index as u32;
            let token_type = self.token_types.get(index).copied().unwrap_or(1);
            let (kind, spelling) = match token_type {
                CONTROL => (Kind::Special, Spelling::Literal),
                USER_DEFINED => (Kind::Added, Spelling::Literal),
                BYTE => (Kind::Normal, Spelling::Metaspace),
                _ => (Kind::Normal, Spelling::ByteLevel),
            };
            if kind != Kind::Normal {
                let special = kind == Kind::Special;
                pairs.added.push(AddedEntry {
                    text: text.clone(),
                    id,
                    special,
                });
            }
            // A control token must stay out of reach of merging, or plain text could produce it.
            if kind != Kind::Special {
                pairs.tokens.insert(text.clone(), id);
            }
            vocabulary.insert(id, text, kind, spelling)?;
        }
        for merge in &self.merges {
            pairs.merges.push(checked_merge(merge, &pairs.tokens)?);
        }
        Ok((pairs, vocabulary))
    }

    /// Whether the file asks for BOS and EOS, or its pre-tokenizer's convention does.
    pub(crate) fn added_ends(&self) -> Result<(bool, bool), TextError> {
        let convention = pretokenizer::named(self.pre.as_deref())?.add_bos && self.bos.is_some();
        Ok((
            self.add_bos.unwrap_or(convention),
            self.add_eos.unwrap_or(false),
        ))
    }

    fn check_lengths(&self) -> Result<(), TextError> {
        let tokens = self.tokens.len();
        let types = self.token_types.len();
        if types != 0 && types != tokens {
            return Err(TextError::BrokenVocabulary(format!(
                "{tokens} tokens but {types} token types"
            )));
        }
        let roles = [
            ("bos", self.bos),
            ("eos", self.eos),
            ("unknown", self.unknown),
            ("padding", self.padding),
        ];
        for (role, id) in roles {
            if let Some(id) = id.filter(|id| *id as usize >= tokens) {
                return Err(TextError::BrokenVocabulary(format!(
                    "the {role} token is {id}, the vocabulary has {tokens} tokens"
                )));
            }
        }
        Ok(())
    }
}

fn checked_merge(
    merge: &str,
    tokens: &HashMap<String, u32>,
) -> Result<(String, String), TextError> {
    let broken = |why: &str| TextError::BrokenVocabulary(format!("merge `{merge}` {why}"));
    let (left, right) = merge
        .split_once(' ')
        .ok_or_else(|| broken("is not a pair"))?;
    for part in [left, right, &format!("{left}{right}")] {
        if !tokens.contains_key(part) {
            return Err(broken(&format!(
                "needs the token `{part}`, which does not exist"
            )));
        }
    }
    Ok((left.to_owned(), right.to_owned()))
}
