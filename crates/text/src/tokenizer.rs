//! Owns the tokenizer: text to token ids and back, from either file format.

use crate::TextError;
use crate::ends::{Ends, Roles};
use crate::pipeline::{Pipeline, Section};
use crate::special_finder::SpecialFinder;
use crate::template::TemplateSpecials;
use crate::tokenizer_config::TokenizerConfig;
use crate::vocabulary::{Kind, Opening, Vocabulary};

/// What happens to special tokens that are written in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// They become their ids: raw prompts.
    Parse,
    /// They are ordinary characters: text from users inside a chat.
    Plain,
}

/// Immutable after loading; share it behind an `Arc`.
pub struct Tokenizer {
    pipeline: Pipeline,
    vocabulary: Vocabulary,
    specials: SpecialFinder,
    /// What the BOS/EOS rules put around a text.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    /// What encoding puts before a text, decoding takes off again.
    opening: Opening,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    padding: Option<u32>,
}

impl Tokenizer {
    /// Loads `tokenizer.json`; `tokenizer_config.json` names the BOS and EOS tokens and, where it
    /// speaks of them, overrules the post-processor on adding them.
    pub fn from_json(json: &[u8], tokenizer_config: Option<&[u8]>) -> Result<Self, TextError> {
        let checked = crate::tokenizer_json::check(json)?;
        let config = tokenizer_config
            .map(TokenizerConfig::from_json)
            .transpose()?
            .unwrap_or_default();
        let loaded = Pipeline::from_json(&checked.json, checked.unknown_id)?;
        let mut vocabulary = Vocabulary::new(loaded.tokens.len() + loaded.added.len());
        for (text, id) in loaded.tokens {
            vocabulary.insert(id, text, Kind::Normal, &checked.spelling)?;
        }
        for added in loaded.added {
            let kind = if added.special {
                Kind::Special
            } else {
                Kind::Added
            };
            vocabulary.insert(added.id, added.text, kind, &checked.spelling)?;
        }
        let role = |text: &Option<String>| text.as_deref().and_then(|text| vocabulary.id_of(text));
        let unknown_id = checked.unknown_id.and_then(|id| u32::try_from(id).ok());
        let roles = Roles {
            bos: role(&config.bos_token),
            eos: role(&config.eos_token),
            unknown: role(&config.unk_token)
                .or(role(&checked.unknown))
                .or(unknown_id),
            padding: role(&config.pad_token),
        };
        let ends = Ends {
            prefix: loaded.prefix,
            suffix: loaded.suffix,
        };
        let ends = ends.configured(&config, &roles)?;
        Self::assemble(loaded.pipeline, vocabulary, checked.opening, roles, ends)
    }

    pub(crate) fn assemble(
        pipeline: Pipeline,
        vocabulary: Vocabulary,
        opening: Opening,
        roles: Roles,
        ends: Ends,
    ) -> Result<Self, TextError> {
        let specials = vocabulary.specials().map(|(_, text)| text.to_owned());
        Ok(Self {
            pipeline,
            specials: SpecialFinder::new(specials)?,
            vocabulary,
            prefix: ends.prefix,
            suffix: ends.suffix,
            opening,
            bos: roles.bos,
            eos: roles.eos,
            unknown: roles.unknown,
            padding: roles.padding,
        })
    }

    /// The ids of `text`; `add_special` puts BOS and EOS around it where the model's rules say so.
    pub fn encode(
        &self,
        text: &str,
        specials: SpecialTokens,
        add_special: bool,
    ) -> Result<Vec<u32>, TextError> {
        let ids = self.encode_section(text, specials, Section::Start)?;
        if !add_special {
            return Ok(ids);
        }
        Ok([&self.prefix, &ids, &self.suffix]
            .into_iter()
            .flatten()
            .copied()
            .collect())
    }

    /// The ids of a part of a text, with nothing put around it.
    pub(crate) fn encode_section(
        &self,
        text: &str,
        specials: SpecialTokens,
        section: Section,
    ) -> Result<Vec<u32>, TextError> {
        let parse = specials == SpecialTokens::Parse;
        let ids = self.pipeline.encode(text, parse, section)?;
        if specials == SpecialTokens::Plain {
            self.refuse_specials(&ids)?;
        }
        Ok(ids)
    }

    /// The text of `ids`, which are a whole text: without the space that SentencePiece-like tokenizers put before it.
    /// Bytes that are not UTF-8 become replacement characters; an id outside the vocabulary contributes nothing.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let Some(first) = ids.iter().position(|id| self.shows(*id, skip_special)) else {
            return String::new();
        };
        let (id, rest) = (ids[first], &ids[first + 1..]);
        match self.opening {
            Opening::Spaces(most) => {
                let mut text = self.decode_continuation(&ids[first..], skip_special);
                let spaces = text.bytes().take_while(|byte| *byte == b' ').count();
                text.drain(..spaces.min(most));
                text
            }
            Opening::FirstTokenWithoutSpaces => {
                let bytes = self.shown_bytes(id, skip_special).iter().copied();
                let bytes = bytes.filter(|byte| *byte != b' ').collect();
                self.decode_onto(bytes, rest, skip_special)
            }
            Opening::FirstTokenAsWritten => {
                let bytes = self.token_text(id).unwrap_or_default().into();
                self.decode_onto(bytes, rest, skip_special)
            }
        }
    }

    /// Whether a token is part of a text.
    pub(crate) fn shows(&self, id: u32, skip_special: bool) -> bool {
        self.vocabulary.text(id).is_some() && !(skip_special && self.is_special(id))
    }

    pub(crate) fn opening(&self) -> Opening {
        self.opening
    }

    /// Like [`Tokenizer::decode`] for `ids` that come after others: a space at their start is part of the text.
    pub fn decode_continuation(&self, ids: &[u32], skip_special: bool) -> String {
        self.decode_onto(Vec::new(), ids, skip_special)
    }

    fn decode_onto(&self, mut bytes: Vec<u8>, ids: &[u32], skip_special: bool) -> String {
        let shown = ids
            .iter()
            .flat_map(|id| self.shown_bytes(*id, skip_special));
        bytes.extend(shown);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The exact bytes this token contributes to a text.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocabulary.bytes(id)
    }

    /// The token as the vocabulary writes it.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocabulary.text(id)
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.vocabulary.id_of(token)
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// Every special token: its id and its text.
    pub fn special_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.vocabulary.specials()
    }

    /// One more than the highest id.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The texts a chat template sees as `bos_token`, `eos_token`, `unk_token` and `pad_token`.
    pub fn template_specials(&self) -> TemplateSpecials {
        let text = |id: Option<u32>| id.and_then(|id| self.token_text(id)).map(str::to_owned);
        TemplateSpecials {
            bos: text(self.bos),
            eos: text(self.eos),
            unk: text(self.unknown),
            pad: text(self.padding),
        }
    }

    pub(crate) fn shown_bytes(&self, id: u32, skip_special: bool) -> &[u8] {
        match self.vocabulary.bytes(id) {
            Some(bytes) if !(skip_special && self.is_special(id)) => bytes,
            _ => &[],
        }
    }

    /// Where special tokens start in `text`, or could if more text followed.
    pub(crate) fn special_starts(&self, text: &str) -> Vec<usize> {
        self.specials.starts(text)
    }

    /// Where special tokens stand in `text`.
    pub(crate) fn special_tokens_in(&self, text: &str) -> Vec<(u32, std::ops::Range<usize>)> {
        let mut found = self.pipeline.added_tokens_in(text);
        found.retain(|(id, _)| self.is_special(*id));
        found
    }

    /// A vocabulary whose merges spell a control token would hand users its power.
    fn refuse_specials(&self, ids: &[u32]) -> Result<(), TextError> {
        let special = |id: &&u32| self.is_special(**id) && Some(**id) != self.unknown;
        match ids.iter().find(special) {
            None => Ok(()),
            Some(id) => Err(TextError::Encode(format!(
                "plain text became the special token {id}"
            ))),
        }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}
