//! Owns everything that can go wrong in the engine, with the numbers, and whose fault it is.

/// Why a request was refused, or ended early.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error(
        "prompt has {prompt} tokens and asks for {max_tokens} more, the context holds {context}"
    )]
    ContextOverflow {
        prompt: usize,
        max_tokens: usize,
        context: usize,
    },
    #[error("{what} holds token id {id}, the vocabulary ends at {last}")]
    OutOfVocabulary {
        what: &'static str,
        id: u32,
        last: usize,
    },
    #[error("{name} is {value}, it must be {range}")]
    OutOfRange {
        name: &'static str,
        value: String,
        range: &'static str,
    },
    #[error("{name} holds an empty list, which says nothing")]
    EmptyList { name: &'static str },
    #[error("min_tokens is {min_tokens}, which is above max_tokens ({max_tokens})")]
    MinAboveMax {
        min_tokens: usize,
        max_tokens: usize,
    },
    #[error("max_tokens is 0, which needs prompt_logprobs: else there is nothing to answer")]
    NothingAsked,
    #[error(
        "a pooled request makes no tokens: it goes with n 1, max_tokens 0, no log-probabilities and no constraint"
    )]
    PoolingAndTokens,
    #[error(
        "prompt has {prompt} tokens and asks for {max_tokens} more, which takes up to {needed} pages of the KV cache; it has {pages}"
    )]
    CacheTooSmall {
        prompt: usize,
        max_tokens: usize,
        needed: usize,
        pages: usize,
    },
    #[error(
        "the request's tokens and log-probabilities may take {bytes} bytes, which the system does not give; ask for fewer tokens, choices or log-probabilities"
    )]
    NoRoom { bytes: usize },
    #[error("the queue is full: {live} requests are running or waiting, the limit is {limit}")]
    QueueFull { live: usize, limit: usize },
    #[error("the engine is shutting down")]
    ShuttingDown,
    #[error("the engine has stopped after an internal error")]
    Dead,
    #[error(
        "the executable can give neither logits, which sampling on the host needs, nor hidden states"
    )]
    NoLogits,
    #[error(
        "this model only makes embeddings (mettle serve, /v1/embeddings): it cannot choose a token"
    )]
    OnlyPools,
    #[error("this model gives no hidden states on this device, which pooling needs")]
    NoHidden,
    #[error(
        "KV group {group} holds an encoder's tokens, and no token was named from which its decoder starts"
    )]
    NoStart { group: usize },
    #[error(
        "prompt has {prompt} tokens and asks for {max_tokens}: the encoder takes {encoder} tokens, the decoder makes {decoder}"
    )]
    EncoderOverflow {
        prompt: usize,
        max_tokens: usize,
        encoder: usize,
        decoder: usize,
    },
    #[error(
        "prompt_logprobs asks how likely the prompt is: an encoder reads this model's prompts, and no token of them is predicted"
    )]
    PromptIsEncoded,
    #[error("the option {name} is {value}, it must be {range}")]
    BadOption {
        name: &'static str,
        value: usize,
        range: String,
    },
    #[error("the model gave a logit that is not a number for token id {id} at position {position}")]
    NotANumber { id: u32, position: u64 },
    #[error(
        "the model gave a hidden state that is not a number in column {column} at position {position}"
    )]
    BadHidden { column: usize, position: u64 },
    #[error("no token can follow at position {position}: every logit is -inf")]
    NothingPossible { position: u64 },
    #[error("the step gave {width} logits a row, the vocabulary has {vocabulary} tokens")]
    TooFewLogits { width: usize, vocabulary: usize },
}

impl EngineError {
    /// True where another request would have been accepted: a server answers 400, not 5xx.
    pub fn is_callers_fault(&self) -> bool {
        matches!(
            self,
            EngineError::EmptyPrompt
                | EngineError::ContextOverflow { .. }
                | EngineError::EncoderOverflow { .. }
                | EngineError::PromptIsEncoded
                | EngineError::OutOfVocabulary { .. }
                | EngineError::OutOfRange { .. }
                | EngineError::EmptyList { .. }
                | EngineError::MinAboveMax { .. }
                | EngineError::NothingAsked
                | EngineError::PoolingAndTokens
                | EngineError::OnlyPools
                | EngineError::CacheTooSmall { .. }
                | EngineError::NoRoom { .. }
        )
    }

    /// True where the same request may be accepted later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, EngineError::QueueFull { .. })
    }
}
