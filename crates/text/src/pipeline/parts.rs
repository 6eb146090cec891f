//! Owns building a pipeline from a vocabulary that is not a `tokenizer.json`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::normalizers::{BertNormalizer, Precompiled};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{AddedToken, AddedVocabulary, Model, ModelWrapper, NormalizerWrapper, Token};

use super::{Pipeline, Splitting};
use crate::TextError;
use crate::spaces::Spaces;
use crate::splitter::Splitter;

pub(crate) struct AddedEntry {
    pub(crate) text: String,
    pub(crate) id: u32,
    pub(crate) special: bool,
    /// Blanks behind it are part of it.
    pub(crate) takes_blanks: bool,
}

/// A byte-level BPE tokenizer in parts. Merges are checked: both halves and the whole exist.
pub(crate) struct BytePairs {
    pub(crate) tokens: HashMap<String, u32>,
    pub(crate) merges: Vec<(String, String)>,
    pub(crate) added: Vec<AddedEntry>,
    pub(crate) patterns: &'static [&'static str],
    pub(crate) ignore_merges: bool,
    pub(crate) compose: bool,
}

/// A SentencePiece tokenizer in parts. The character map is checked, and empty where there is none.
pub(crate) struct Pieces {
    pub(crate) model: PieceModel,
    pub(crate) added: Vec<AddedEntry>,
    pub(crate) charsmap: Vec<u8>,
    pub(crate) spaces: Spaces,
}

pub(crate) enum PieceModel {
    /// Merges are checked, as in [`BytePairs`].
    Merging {
        tokens: HashMap<String, u32>,
        merges: Vec<(String, String)>,
        unknown: Option<String>,
        byte_fallback: bool,
    },
    /// Texts and log-probabilities, by id.
    Unigram {
        entries: Vec<(String, f64)>,
        unknown: Option<usize>,
        byte_fallback: bool,
    },
}

/// A WordPiece tokenizer in parts: BERT's, with `##` before what continues a word.
pub(crate) struct WordParts {
    pub(crate) tokens: HashMap<String, u32>,
    pub(crate) unknown: String,
    pub(crate) added: Vec<AddedEntry>,
    pub(crate) lowercase: bool,
}

impl Pipeline {
    pub(crate) fn from_byte_pairs(pairs: BytePairs) -> Result<Self, TextError> {
        let model = BPE::builder()
            .vocab_and_merges(pairs.tokens.into_iter().collect::<Vocab>(), pairs.merges)
            .ignore_merges(pairs.ignore_merges)
            .build()
            .map_err(broken)?;
        let splitters = pairs.patterns.iter().map(|pattern| {
            Splitter::new(pattern, true).expect("a test builds every known pattern")
        });
        Ok(Self::assemble(
            model.into(),
            pairs.compose.then(|| NFC.into()),
            Splitting::ByteLevel(splitters.collect()),
            added_vocabulary(&pairs.added)?,
        ))
    }

    pub(crate) fn from_pieces(pieces: Pieces) -> Result<Self, TextError> {
        let model: ModelWrapper = match pieces.model {
            PieceModel::Merging {
                tokens,
                merges,
                unknown,
                byte_fallback,
            } => {
                let builder = BPE::builder()
                    .vocab_and_merges(tokens.into_iter().collect::<Vocab>(), merges)
                    .fuse_unk(true)
                    .byte_fallback(byte_fallback);
                let builder = match unknown {
                    Some(unknown) => builder.unk_token(unknown),
                    None => builder,
                };
                builder.build().map_err(broken)?.into()
            }
            PieceModel::Unigram {
                entries,
                unknown,
                byte_fallback,
            } => Unigram::from(entries, unknown, byte_fallback)
                .map_err(broken)?
                .into(),
        };
        let charsmap = match pieces.charsmap.is_empty() {
            true => None,
            false => {
                Some(Precompiled::from(&pieces.charsmap).map_err(|error| broken(Box::new(error)))?)
            }
        };
        let spaces = pieces.spaces;
        let splitting = Splitting::Spaces { charsmap, spaces };
        let added = added_vocabulary(&pieces.added)?;
        Ok(Self::assemble(model, None, splitting, added))
    }

    pub(crate) fn from_word_parts(parts: WordParts) -> Result<Self, TextError> {
        let model = WordPiece::builder()
            .vocab(parts.tokens.into_iter().collect::<Vocab>())
            .unk_token(parts.unknown)
            .build()
            .map_err(broken)?;
        // Accents go where case goes, as in every published BERT.
        let normalizer = BertNormalizer::new(true, true, None, parts.lowercase);
        Ok(Self::assemble(
            model.into(),
            Some(normalizer.into()),
            Splitting::library(Some(BertPreTokenizer.into())),
            added_vocabulary(&parts.added)?,
        ))
    }
}

fn broken(error: tokenizers::Error) -> TextError {
    TextError::BrokenVocabulary(error.to_string())
}

fn added_vocabulary(added: &[AddedEntry]) -> Result<AddedVocabulary, TextError> {
    let ids = added.iter().map(|added| (added.text.clone(), added.id));
    let ids = FixedIds(ids.collect());
    let tokens = added.iter().map(|added| {
        AddedToken::from(&*added.text, added.special)
            .normalized(false)
            .rstrip(added.takes_blanks)
    });
    let mut vocabulary = AddedVocabulary::new();
    vocabulary
        .add_tokens(tokens, &ids, None::<&NormalizerWrapper>)
        .map_err(broken)?;
    Ok(vocabulary)
}

/// Lends the library ids for added tokens, which it would otherwise number itself.
struct FixedIds(HashMap<String, u32>);

impl Model for FixedIds {
    type Trainer = BpeTrainer;

    fn tokenize(&self, _: &str) -> tokenizers::Result<Vec<Token>> {
        Ok(Vec::new())
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.get(token).copied()
    }

    fn id_to_token(&self, _: u32) -> Option<String> {
        None
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.clone()
    }

    fn get_vocab_size(&self) -> usize {
        self.0.len()
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn get_trainer(&self) -> Self::Trainer {
        BpeTrainer::default()
    }
}
