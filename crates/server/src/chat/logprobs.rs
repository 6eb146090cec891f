//! Owns the log-probabilities of chat tokens on the wire.

use crate::completions::{LOWEST, text_of};
use mettle_engine::TokenLogprobs;
use mettle_text::Tokenizer;
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprobs {
    pub content: Vec<ScoredToken>,
    pub refusal: Option<Vec<ScoredToken>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ScoredToken {
    pub token: String,
    pub logprob: f32,
    /// What the token adds to the text, which may be a part of a character.
    pub bytes: Option<Vec<u8>>,
    pub top_logprobs: Vec<Alternative>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Alternative {
    pub token: String,
    pub logprob: f32,
    pub bytes: Option<Vec<u8>>,
}

impl ScoredToken {
    pub fn new(tokenizer: &Tokenizer, logprobs: &TokenLogprobs) -> ScoredToken {
        let alternative = |(id, logprob): &(u32, f32)| Alternative {
            token: text_of(tokenizer, *id),
            logprob: logprob.max(LOWEST),
            bytes: tokenizer.token_bytes(*id).map(<[u8]>::to_vec),
        };
        let own = alternative(&(logprobs.id, logprobs.logprob));
        ScoredToken {
            token: own.token,
            logprob: own.logprob,
            bytes: own.bytes,
            top_logprobs: logprobs.top.iter().map(alternative).collect(),
        }
    }
}
