//! Owns the `tokenizers` library: nothing outside this file names it.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;
use tokenizers::{
    AddedToken, AddedVocabulary, Encoding, Model, ModelWrapper, NormalizerWrapper,
    OffsetReferential, OffsetType, PostProcessor, PreTokenizedString, PreTokenizer,
    PreTokenizerWrapper, Token,
};

use crate::pretokenizer::GPT2_PATTERN;
use crate::splitter::Splitter;
use crate::{TextError, byte_alphabet};

pub(crate) struct Pipeline {
    model: ModelWrapper,
    normalizer: Option<NormalizerWrapper>,
    splitting: Splitting,
    /// Finds every added token.
    parsing: AddedVocabulary,
    /// Finds only those that are not special.
    plain: AddedVocabulary,
}

enum Splitting {
    /// The whole pre-tokenizer as automata, ending in the byte-level alphabet.
    ByteLevel(Vec<Splitter>),
    Library(Option<PreTokenizerWrapper>),
}

pub(crate) struct AddedEntry {
    pub(crate) text: String,
    pub(crate) id: u32,
    pub(crate) special: bool,
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

/// A loaded `tokenizer.json`, and what its file says beyond the pipeline.
pub(crate) struct LoadedJson {
    pub(crate) pipeline: Pipeline,
    pub(crate) tokens: HashMap<String, u32>,
    pub(crate) added: Vec<AddedEntry>,
    /// What the post-processor puts before and after a text.
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
}

impl Pipeline {
    pub(crate) fn from_byte_pairs(pairs: BytePairs) -> Result<Self, TextError> {
        let broken = |error: tokenizers::Error| TextError::BrokenVocabulary(error.to_string());
        let mut parsing = AddedVocabulary::new();
        let ids = FixedIds(
            pairs
                .added
                .iter()
                .map(|added| (added.text.clone(), added.id))
                .collect(),
        );
        let added = pairs
            .added
            .iter()
            .map(|added| AddedToken::from(&*added.text, added.special).normalized(false));
        parsing
            .add_tokens(added, &ids, None::<&NormalizerWrapper>)
            .map_err(broken)?;
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
            parsing,
        ))
    }

    pub(crate) fn from_json(json: &[u8]) -> Result<LoadedJson, TextError> {
        let broken = |error: tokenizers::Error| TextError::TokenizerJson(error.to_string());
        let library = tokenizers::Tokenizer::from_bytes(json).map_err(broken)?;
        let tokens = library.get_vocab(false);
        let parsing = library.get_added_vocabulary().clone();
        let added = parsing
            .get_added_tokens_decoder()
            .iter()
            .map(|(id, token)| AddedEntry {
                text: token.content.clone(),
                id: *id,
                special: token.special,
            });
        let added = added.collect();
        let (prefix, suffix) = ends(library.get_post_processor())?;
        let pretokenizer = library.get_pre_tokenizer().cloned();
        let splitting = match pretokenizer.as_ref().and_then(as_splitters) {
            Some(splitters) => Splitting::ByteLevel(splitters),
            None => Splitting::Library(pretokenizer),
        };
        let pipeline = Self::assemble(
            library.get_model().clone(),
            library.get_normalizer().cloned(),
            splitting,
            parsing,
        );
        Ok(LoadedJson {
            pipeline,
            tokens,
            added,
            prefix,
            suffix,
        })
    }

    fn assemble(
        model: ModelWrapper,
        normalizer: Option<NormalizerWrapper>,
        splitting: Splitting,
        mut parsing: AddedVocabulary,
    ) -> Self {
        parsing.set_encode_special_tokens(false);
        let mut plain = parsing.clone();
        plain.set_encode_special_tokens(true);
        Self {
            model,
            normalizer,
            splitting,
            parsing,
            plain,
        }
    }

    /// The ids of `text`, with special tokens in it recognised or not.
    pub(crate) fn encode(&self, text: &str, parse_specials: bool) -> Result<Vec<u32>, TextError> {
        let added = if parse_specials {
            &self.parsing
        } else {
            &self.plain
        };
        let extracted = added.extract_and_normalize(self.normalizer.as_ref(), text);
        let ids = match &self.splitting {
            Splitting::ByteLevel(splitters) => self.encode_byte_level(splitters, &extracted),
            Splitting::Library(pretokenizer) => {
                self.encode_by_library(pretokenizer.as_ref(), extracted)
            }
        };
        ids.map_err(|error| TextError::Encode(error.to_string()))
    }

    /// Where added tokens stand in `text`, in order.
    pub(crate) fn added_tokens_in(&self, text: &str) -> Vec<(u32, Range<usize>)> {
        let extracted = self
            .parsing
            .extract_and_normalize(self.normalizer.as_ref(), text);
        let splits = extracted.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let found = splits.into_iter().filter_map(|(_, (start, end), tokens)| {
            let token = tokens.as_ref()?.first()?;
            Some((token.id, start..end))
        });
        found.collect()
    }

    fn encode_byte_level(
        &self,
        splitters: &[Splitter],
        extracted: &PreTokenizedString,
    ) -> Result<Vec<u32>, tokenizers::Error> {
        let mut ids = Vec::new();
        let mut spelled = String::new();
        for (text, _, tokens) in
            extracted.get_splits(OffsetReferential::Normalized, OffsetType::None)
        {
            if let Some(tokens) = tokens {
                ids.extend(tokens.iter().map(|token| token.id));
                continue;
            }
            let mut outcome = Ok(());
            split_in_turn(splitters, text, &mut |piece| {
                spelled.clear();
                byte_alphabet::write(piece, &mut spelled);
                match self.model.tokenize(&spelled) {
                    Ok(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
                    Err(error) => outcome = Err(error),
                }
            });
            outcome?;
        }
        Ok(ids)
    }

    fn encode_by_library(
        &self,
        pretokenizer: Option<&PreTokenizerWrapper>,
        mut extracted: PreTokenizedString,
    ) -> Result<Vec<u32>, tokenizers::Error> {
        if let Some(pretokenizer) = pretokenizer {
            pretokenizer.pre_tokenize(&mut extracted)?;
        }
        extracted.tokenize(|piece| self.model.tokenize(piece.get()))?;
        Ok(extracted
            .into_encoding(None, 0, OffsetType::None)?
            .get_ids()
            .to_vec())
    }
}

fn split_in_turn(splitters: &[Splitter], text: &str, piece: &mut dyn FnMut(&str)) {
    match splitters.split_first() {
        None => piece(text),
        Some((first, rest)) => first.split(text, |range| split_in_turn(rest, &text[range], piece)),
    }
}

/// The same pre-tokenizer as automata, where it is made of nothing else and ends byte-level.
fn as_splitters(pretokenizer: &PreTokenizerWrapper) -> Option<Vec<Splitter>> {
    let steps = match pretokenizer {
        PreTokenizerWrapper::Sequence(sequence) => sequence.as_ref(),
        single => std::slice::from_ref(single),
    };
    let (last, before) = steps.split_last()?;
    let mut splitters = before.iter().map(as_splitter).collect::<Option<Vec<_>>>()?;
    match last {
        PreTokenizerWrapper::ByteLevel(bytes) if !bytes.add_prefix_space => {
            if bytes.use_regex {
                splitters.push(Splitter::new(GPT2_PATTERN, true)?);
            }
            Some(splitters)
        }
        _ => None,
    }
}

fn as_splitter(step: &PreTokenizerWrapper) -> Option<Splitter> {
    match step {
        PreTokenizerWrapper::Digits(digits) if digits.individual_digits => {
            Splitter::new(r"\p{N}", true)
        }
        PreTokenizerWrapper::Split(split) => {
            let SplitPattern::Regex(pattern) = &split.pattern else {
                return None;
            };
            match (split.behavior, split.invert) {
                (SplitDelimiterBehavior::Isolated, _) => Splitter::new(pattern, true),
                (SplitDelimiterBehavior::Removed, true) => Splitter::new(pattern, false),
                _ => None,
            }
        }
        _ => None,
    }
}

/// What a post-processor adds around one text: tried on a token that exists in no vocabulary.
fn ends(
    processor: Option<&tokenizers::PostProcessorWrapper>,
) -> Result<(Vec<u32>, Vec<u32>), TextError> {
    const PROBE: u32 = u32::MAX;
    let Some(processor) = processor else {
        return Ok((Vec::new(), Vec::new()));
    };
    let probe = Encoding::from_tokens(vec![Token::new(PROBE, String::new(), (0, 0))], 0);
    let around = processor
        .process(probe, None, true)
        .map_err(|error| TextError::TokenizerJson(error.to_string()))?;
    let ids = around.get_ids();
    let Some(position) = ids.iter().position(|id| *id == PROBE) else {
        return Err(TextError::TokenizerJson(
            "the post-processor drops the text".to_owned(),
        ));
    };
    Ok((ids[..position].to_vec(), ids[position + 1..].to_vec()))
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
