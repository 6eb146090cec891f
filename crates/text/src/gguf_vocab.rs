//! Owns the vocabulary as a GGUF file stores it, and what a byte-level BPE tokenizer needs of it.

use std::collections::HashMap;

use crate::ends::{Ends, Roles};
use crate::pipeline::{AddedEntry, BytePairs, Pipeline};
use crate::vocabulary::{Kind, Opening, Spelling, Vocabulary};
use crate::{GgufPieces, TextError, Tokenizer, pretokenizer};

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
    /// Whether a SentencePiece vocabulary puts a space before a text; they do where the file is silent, save Gemma 4's.
    /// Byte-level BPE never does, also where a converter wrote the key.
    pub add_space_prefix: Option<bool>,
}

const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file with byte-level BPE, which needs no keys but these.
    pub fn from_gguf(vocab: GgufVocab) -> Result<Self, TextError> {
        Self::from_gguf_pieces(vocab, GgufPieces::default())
    }

    /// Builds the tokenizer of a GGUF file: byte-level BPE, SentencePiece (BPE or Unigram) or WordPiece.
    pub fn from_gguf_pieces(vocab: GgufVocab, pieces: GgufPieces) -> Result<Self, TextError> {
        vocab.check_lengths()?;
        match vocab.model.as_str() {
            "gpt2" => vocab.into_byte_level(),
            "llama" | "gemma4" | "t5" => pieces.into_sentence_pieces(vocab),
            "bert" => pieces.into_word_pieces(vocab),
            _ => Err(TextError::UnsupportedModel {
                model: vocab.model,
                supported: "gpt2 (byte-level BPE), llama and gemma4 (SentencePiece BPE), t5 (Unigram), bert (WordPiece)",
            }),
        }
    }
}

impl GgufVocab {
    fn into_byte_level(self) -> Result<Tokenizer, TextError> {
        let roles = self.roles();
        let (add_bos, add_eos) = self.added_ends()?;
        let (pairs, vocabulary) = self.into_byte_pairs()?;
        let ends = Ends::new(add_bos, add_eos, &roles)?;
        let pipeline = Pipeline::from_byte_pairs(pairs)?;
        Tokenizer::assemble(pipeline, vocabulary, Opening::Spaces(0), roles, ends)
    }

    pub(crate) fn roles(&self) -> Roles {
        Roles {
            bos: self.bos,
            eos: self.eos,
            unknown: self.unknown,
            padding: self.padding,
        }
    }

    fn into_byte_pairs(self) -> Result<(BytePairs, Vocabulary), TextError> {
        let pre = pretokenizer::named(self.pre.as_deref())?;
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
            vocabulary.insert(id, text, kind, &spelling)?;
        }
        for merge in &self.merges {
            pairs.merges.push(checked_merge(merge, &pairs.tokens)?);
        }
        Ok((pairs, vocabulary))
    }

    /// Whether the file asks for BOS and EOS, or its pre-tokenizer's convention does.
    fn added_ends(&self) -> Result<(bool, bool), TextError> {
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
            self.check_role(role, id)?;
        }
        Ok(())
    }

    pub(crate) fn check_role(&self, role: &str, id: Option<u32>) -> Result<(), TextError> {
        let tokens = self.tokens.len();
        match id.filter(|id| *id as usize >= tokens) {
            None => Ok(()),
            Some(id) => Err(TextError::BrokenVocabulary(format!(
                "the {role} token is {id}, the vocabulary has {tokens} tokens"
            ))),
        }
    }
}

pub(crate) fn checked_merge(
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
