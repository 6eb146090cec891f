//! Owns building a pipeline from a `tokenizer.json`, by the library's own reading of it.

use std::collections::{HashMap, HashSet};

use tokenizers::models::unigram::Unigram;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;
use tokenizers::{Encoding, ModelWrapper, PostProcessor, PreTokenizerWrapper, Token};

use super::{AddedEntry, Pipeline, Splitting};
use crate::TextError;
use crate::pretokenizer::GPT2_PATTERN;
use crate::sentence_pieces::unless_reachable;
use crate::splitter::Splitter;

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
    /// `unknown` is the id that a Unigram model names.
    pub(crate) fn from_json(json: &[u8], unknown: Option<usize>) -> Result<LoadedJson, TextError> {
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
                takes_blanks: token.rstrip,
            });
        let added: Vec<AddedEntry> = added.collect();
        let (prefix, suffix) = ends(library.get_post_processor())?;
        let pretokenizer = library.get_pre_tokenizer().cloned();
        let splitting = match pretokenizer.as_ref().and_then(as_splitters) {
            Some(splitters) => Splitting::ByteLevel(splitters),
            None => Splitting::library(pretokenizer),
        };
        let model = match library.get_model() {
            ModelWrapper::Unigram(unigram) => without_specials(unigram, unknown, &added)?.into(),
            model => model.clone(),
        };
        let pipeline = Self::assemble(model, library.get_normalizer().cloned(), splitting, parsing);
        Ok(LoadedJson {
            pipeline,
            tokens,
            added,
            prefix,
            suffix,
        })
    }
}

fn broken(error: tokenizers::Error) -> TextError {
    TextError::TokenizerJson(error.to_string())
}

/// Such a file lists special tokens among its pieces, with the best score of all: plain text would turn into them.
fn without_specials(
    unigram: &Unigram,
    unknown: Option<usize>,
    added: &[AddedEntry],
) -> Result<Unigram, TextError> {
    let specials = added.iter().filter(|entry| entry.special);
    let specials: HashSet<&str> = specials.map(|entry| entry.text.as_str()).collect();
    let entries = unigram.iter().map(|(text, score)| {
        let reachable = !specials.contains(text.as_str());
        (unless_reachable(text, reachable), *score)
    });
    Unigram::from(entries.collect(), unknown, unigram.byte_fallback()).map_err(broken)
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
    let around = processor.process(probe, None, true).map_err(broken)?;
    let ids = around.get_ids();
    let Some(position) = ids.iter().position(|id| *id == PROBE) else {
        return Err(TextError::TokenizerJson(
            "the post-processor drops the text".to_owned(),
        ));
    };
    Ok((ids[..position].to_vec(), ids[position + 1..].to_vec()))
}
