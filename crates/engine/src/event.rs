//! Owns what a request's stream carries: tokens, log-probabilities, and the one event that ends each choice.

use std::time::Duration;

/// How likely a token was, by the model's own logits: before bans, bias, penalties, temperature and filters, so the token
/// made may be one that the model thought unlikely.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    pub id: u32,
    pub logprob: f32,
    /// 1 for the most likely token; tokens as likely count only where their id is lower.
    pub rank: u32,
    /// The most likely tokens, most likely first, ties to the lower id; as many as were asked for.
    pub top: Vec<(u32, f32)>,
}

/// Why a choice stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// One of the model's end-of-sequence tokens.
    Eos,
    /// One of the request's `stop_ids`.
    StopId(u32),
    /// A stop string; found by [`crate::Answer`], which reads text, never by the engine.
    StopString(String),
    /// The request's constraint allows nothing more.
    Constraint,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Stop {
        by: StopCause,
    },
    /// `max_tokens` were made, or the prompt was all that was asked for.
    Length,
    /// The stream was dropped or aborted, or the engine shut down.
    Abort,
    /// The request's deadline has passed.
    Deadline,
    Error(String),
}

/// Tokens that a choice took. Its siblings share the prompt and what of it came from the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    /// Tokens made, a final end-of-sequence or stop token included.
    pub completion: usize,
    /// Prompt tokens that came from the prefix cache when the request first ran; what it found again after a preemption
    /// does not count.
    pub cached: usize,
}

/// Where a choice's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From submission to the first step it took part in.
    pub queue: Duration,
    /// From there until its prompt was computed and the first token made.
    pub prefill: Duration,
    /// From there to the end.
    pub decode: Duration,
}

/// The end of one choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Which of the request's `n` choices: 0 to n - 1.
    pub choice: usize,
    pub reason: FinishReason,
    pub usage: Usage,
    pub timings: Timings,
    /// The prompt's vector, where the request asked for pooling and came to its end.
    pub pooled: Option<Vec<f32>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// One entry per prompt token, before the first `Token`; the first entry is `None`: nothing predicts it.
    PromptLogprobs(Vec<Option<TokenLogprobs>>),
    Token {
        /// Which of the request's `n` choices.
        choice: usize,
        id: u32,
        /// Present where the request asked for log-probabilities.
        logprobs: Option<TokenLogprobs>,
        /// An end-of-sequence token or stop id that ends the choice: counted, but not part of its text.
        is_stop: bool,
    },
    /// Exactly once for each choice, its last event.
    Finished(Finished),
}
