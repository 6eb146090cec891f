//! Owns log-probabilities on the wire: OpenAI's legacy lists, and the per-token maps of the prompt.

use mettle_engine::TokenLogprobs;
use mettle_text::{Detokenizer, Tokenizer};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// JSON has no infinity.
pub const LOWEST: f32 = -9999.0;

#[derive(Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct LegacyLogprobs {
    pub tokens: Vec<String>,
    pub token_logprobs: Vec<Option<f32>>,
    /// The token itself and the most likely ones, by their texts.
    #[schema(value_type = Vec<Option<BTreeMap<String, f32>>>)]
    pub top_logprobs: Vec<Option<TopLogprobs>>,
    /// Where each token starts in the text, in characters.
    pub text_offset: Vec<usize>,
}

impl LegacyLogprobs {
    /// Puts what comes next behind what is there.
    pub fn append(&mut self, mut more: LegacyLogprobs) {
        self.tokens.append(&mut more.tokens);
        self.token_logprobs.append(&mut more.token_logprobs);
        self.top_logprobs.append(&mut more.top_logprobs);
        self.text_offset.append(&mut more.text_offset);
    }
}

/// An object on the wire, most likely first.
#[derive(Debug, Default, PartialEq)]
pub struct TopLogprobs(Vec<(String, f32)>);

impl Serialize for TopLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(text, logprob)| (text, logprob)))
    }
}

/// Adds tokens one after another and keeps count of the characters before each.
pub struct LegacyBuilder {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    top: usize,
    characters: usize,
    lists: LegacyLogprobs,
}

impl LegacyBuilder {
    pub fn new(tokenizer: &Arc<Tokenizer>, top: usize, skip_special: bool) -> LegacyBuilder {
        LegacyBuilder {
            tokenizer: tokenizer.clone(),
            detokenizer: Detokenizer::new(tokenizer.clone(), skip_special),
            top,
            characters: 0,
            lists: LegacyLogprobs::default(),
        }
    }

    /// `None` for the first token of a prompt, which nothing predicts. `is_shown`: the token is part of the text.
    pub fn push(&mut self, id: u32, logprobs: Option<&TokenLogprobs>, is_shown: bool) {
        self.lists.tokens.push(text_of(&self.tokenizer, id));
        self.lists.text_offset.push(self.characters);
        self.lists
            .token_logprobs
            .push(logprobs.map(|l| l.logprob.max(LOWEST)));
        let top = logprobs.map(|logprobs| self.top_of(logprobs));
        self.lists.top_logprobs.push(top);
        if is_shown {
            self.characters += self.detokenizer.push(id).chars().count();
        }
    }

    /// The prompt's text is done: an answer starts after `characters` of it.
    pub fn start_answer(&mut self, characters: usize, detokenizer: Detokenizer) {
        self.characters = characters;
        self.detokenizer = detokenizer;
    }

    /// The tokens since the last call.
    pub fn take(&mut self) -> LegacyLogprobs {
        std::mem::take(&mut self.lists)
    }

    fn top_of(&self, logprobs: &TokenLogprobs) -> TopLogprobs {
        let own = (logprobs.id, logprobs.logprob);
        let mut entries: Vec<(String, f32)> = Vec::with_capacity(self.top + 1);
        for (id, logprob) in logprobs.top.iter().take(self.top).chain([&own]) {
            let text = text_of(&self.tokenizer, *id);
            // Parts of characters may look the same; the most likely one stays.
            if !entries.iter().any(|(known, _)| *known == text) {
                entries.push((text, logprob.max(LOWEST)));
            }
        }
        TopLogprobs(entries)
    }
}

/// A prompt token's entry in `prompt_logprobs`.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub struct PromptToken {
    pub logprob: f32,
    pub rank: u32,
    pub decoded_token: String,
}

/// The token itself and the most likely ones, by id.
pub fn prompt_entry(tokenizer: &Tokenizer, logprobs: &TokenLogprobs) -> BTreeMap<u32, PromptToken> {
    let entry = |id: u32, logprob: f32, rank: u32| {
        let token = PromptToken {
            logprob: logprob.max(LOWEST),
            rank,
            decoded_token: text_of(tokenizer, id),
        };
        (id, token)
    };
    let ranks = 1..;
    let top = logprobs.top.iter().zip(ranks);
    let mut entries: BTreeMap<u32, PromptToken> =
        top.map(|((id, l), rank)| entry(*id, *l, rank)).collect();
    entries.extend([entry(logprobs.id, logprobs.logprob, logprobs.rank)]);
    entries
}

pub fn text_of(tokenizer: &Tokenizer, id: u32) -> String {
    tokenizer.decode_continuation(&[id], false)
}
