//! Owns the count of tokens that a request took, and how answers end on the wire.

use crate::error::ApiError;
use mettle_engine::{AnswerEnd, FinishReason, StopCause};
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
    pub prompt_tokens_details: PromptTokensDetails,
    /// Where reasoning is told from the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptTokensDetails {
    pub cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct CompletionTokensDetails {
    /// Tokens between the tags of the reasoning.
    pub reasoning_tokens: usize,
}

impl Usage {
    /// Counts a prompt, once, however many answers it gets.
    pub fn add_prompt(&mut self, tokens: usize) {
        self.prompt_tokens += tokens;
        self.total_tokens += tokens;
    }

    pub fn add_token(&mut self) {
        self.completion_tokens += 1;
        self.total_tokens += 1;
    }

    /// Whether the token just counted is part of the reasoning; `None` where that is not told.
    pub fn add_thought(&mut self, is_thought: Option<bool>) {
        if let Some(is_thought) = is_thought {
            let details = self.completion_tokens_details.get_or_insert_default();
            details.reasoning_tokens += usize::from(is_thought);
        }
    }

    pub fn reasoning_tokens(&self) -> usize {
        let details = self.completion_tokens_details;
        details.map_or(0, |details| details.reasoning_tokens)
    }

    /// What of the prompt came from the cache is known when its first answer ends.
    pub fn add_end(&mut self, choice: usize, end: &AnswerEnd) {
        if choice == 0 {
            self.prompt_tokens_details.cached_tokens += end.usage.cached;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StopReason {
    Text(String),
    Id(u32),
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub finish_reason: &'static str,
    /// The stop string or token id that ended it; `None` for the model's own end.
    pub stop_reason: Option<StopReason>,
}

impl Ending {
    pub fn of(end: &AnswerEnd) -> Result<Ending, ApiError> {
        let (finish_reason, stop_reason) = match &end.reason {
            FinishReason::Length => ("length", None),
            FinishReason::Abort => ("abort", None),
            FinishReason::Stop { by } => match by {
                StopCause::Eos | StopCause::Constraint => ("stop", None),
                StopCause::StopId(id) => ("stop", Some(StopReason::Id(*id))),
                StopCause::StopString(text) => ("stop", Some(StopReason::Text(text.clone()))),
            },
            FinishReason::Deadline => {
                return Err(ApiError::TooLate);
            }
            FinishReason::Error(_) => return Err(ApiError::engine_failed()),
        };
        Ok(Ending {
            finish_reason,
            stop_reason,
        })
    }
}
