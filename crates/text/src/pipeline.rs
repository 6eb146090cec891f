//! Owns the `tokenizers` library: nothing outside this file and its folder names it.

mod json;
mod parts;

use std::ops::Range;

use tokenizers::normalizers::Precompiled;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{
    AddedVocabulary, Model, ModelWrapper, NormalizerWrapper, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
};

use crate::spaces::Spaces;
use crate::splitter::Splitter;
use crate::{TextError, byte_alphabet};

pub(crate) use parts::{AddedEntry, BytePairs, PieceModel, Pieces, WordParts};

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
    /// SentencePiece: characters are replaced, spaces are written out.
    Spaces {
        charsmap: Option<Precompiled>,
        spaces: Spaces,
    },
    Library(Box<ByLibrary>),
}

struct ByLibrary {
    pretokenizer: Option<PreTokenizerWrapper>,
    /// The same for what is not the start of a text, where that makes a difference.
    later: Option<PreTokenizerWrapper>,
}

impl Splitting {
    fn library(pretokenizer: Option<PreTokenizerWrapper>) -> Self {
        let later = pretokenizer.as_ref().and_then(without_first_space);
        Self::Library(Box::new(ByLibrary {
            pretokenizer,
            later,
        }))
    }
}

/// Which part of a text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Start,
    /// Text comes before it: some tokenizers put a space before the first only.
    Later,
}

impl Pipeline {
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
    pub(crate) fn encode(
        &self,
        text: &str,
        parse_specials: bool,
        section: Section,
    ) -> Result<Vec<u32>, TextError> {
        let added = if parse_specials {
            &self.parsing
        } else {
            &self.plain
        };
        let extracted = added.extract_and_normalize(self.normalizer.as_ref(), text);
        let ids = match &self.splitting {
            Splitting::ByteLevel(splitters) => self.encode_byte_level(splitters, &extracted),
            Splitting::Spaces { charsmap, spaces } => {
                self.encode_pieces(charsmap.as_ref(), spaces, &extracted)
            }
            Splitting::Library(library) => {
                let later = library.later.as_ref();
                let later = later.filter(|_| section == Section::Later);
                self.encode_by_library(later.or(library.pretokenizer.as_ref()), extracted)
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
        let mut spelled = String::new();
        self.encode_texts(extracted, |text, piece| {
            split_in_turn(splitters, text, &mut |part| {
                spelled.clear();
                byte_alphabet::write(part, &mut spelled);
                piece(&spelled);
            });
        })
    }

    /// The map is applied as transformers does: a character of several code points is replaced by what its first ones
    /// stand for, where SentencePiece and llama.cpp would keep the rest (`ﬁ` with an accent).
    fn encode_pieces(
        &self,
        charsmap: Option<&Precompiled>,
        spaces: &Spaces,
        extracted: &PreTokenizedString,
    ) -> Result<Vec<u32>, tokenizers::Error> {
        self.encode_texts(extracted, |text, piece| match charsmap {
            Some(charsmap) => spaces.split(&charsmap.normalize_string(text), piece),
            None => spaces.split(text, piece),
        })
    }

    /// Ids of the added tokens that were found, and of every piece that `split` makes of the texts between them.
    fn encode_texts(
        &self,
        extracted: &PreTokenizedString,
        mut split: impl FnMut(&str, &mut dyn FnMut(&str)),
    ) -> Result<Vec<u32>, tokenizers::Error> {
        let mut ids = Vec::new();
        for (text, _, tokens) in
            extracted.get_splits(OffsetReferential::Normalized, OffsetType::None)
        {
            if let Some(tokens) = tokens {
                ids.extend(tokens.iter().map(|token| token.id));
                continue;
            }
            let mut outcome = Ok(());
            split(text, &mut |piece| match self.model.tokenize(piece) {
                Ok(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
                Err(error) => outcome = Err(error),
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

/// The pre-tokenizer without the space that it puts before the first text only; `None` if it puts none.
fn without_first_space(pretokenizer: &PreTokenizerWrapper) -> Option<PreTokenizerWrapper> {
    let mut changed = pretokenizer.clone();
    let steps = match &mut changed {
        PreTokenizerWrapper::Sequence(sequence) => sequence.as_mut(),
        single => std::slice::from_mut(single),
    };
    let mut found = false;
    for step in steps {
        if let PreTokenizerWrapper::Metaspace(metaspace) = step
            && metaspace.prepend_scheme == PrependScheme::First
        {
            metaspace.prepend_scheme = PrependScheme::Never;
            found = true;
        }
    }
    found.then_some(changed)
}
