//! Owns what a request's stream carries: tokens, log-probabilities, and the one event that ends it.

use std::time::Duration;

/// How likely a token was, by the model's own logits (before bias, penalties and temperature).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    pub id: u32,
    pub logprob: f32,
    /// 1 for the most likely token; tokens as likely count only where their id is lower.
    pub rank: u32,
    /// The most likely tokens, most likely first, ties to the lower id; as many as were asked for.
    pub top: Vec<(u32, f32)>,
}

/// Why a request stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// One of the model's end-of-sequence tokens.
    Eos,
    /// One of the request's `stop_ids`.
    StopId(u32),
    /// A stop string; found by [`crate::Answer`], which reads text, never by the engine.
    StopString(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Stop {
        by: StopCause,
    },
    /// `max_tokens` were made.
    Length,
    /// The stream was dropped or aborted, or the engine shut down.
    Abort,
    Error(String),
}

/// Tokens that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    /// Tokens made, a final end-of-sequence or stop token included.
    pub completion: usize,
    /// Prompt tokens that came from the prefix cache.
    pub cached: usize,
}

/// Where a request's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From submission to the first step it took part in.
    pub queue: Duration,
    /// From there until its prompt was computed and the first token made.
    pub prefill: Duration,
    /// From there to the end.
    pub decode: Duration,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub reason: FinishReason,
    pub usage: Usage,
    pub timings: Timings,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// One entry per prompt token, before the first `Token`; the first entry is `None`: nothing predicts it.
    PromptLogprobs(Vec<Option<TokenLogprobs>>),
    Token {
        id: u32,
        /// Present where the request asked for log-probabilities.
        logprobs: Option<TokenLogprobs>,
        /// An end-of-sequence token or stop id that ends the request: counted, but not part of its text.
        is_stop: bool,
    },
    /// Exactly once, last.
    Finished(Finished),
}
