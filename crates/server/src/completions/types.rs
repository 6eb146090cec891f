//! Owns the shapes of a completion on the wire, request and response.

use super::logprobs::{LegacyLogprobs, PromptToken};
use super::prompt::Prompts;
use crate::constraints::ConstraintFields;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::{Generation, check_logprobs, refuse};
use crate::usage::{StopReason, Usage};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Answers in one response, over all prompts.
const MOST_CHOICES: usize = 2048;

/// A request as it was written: of the right types, not yet known to make sense.
#[derive(Debug, ToSchema)]
pub struct CompletionRequest {
    pub model: Option<String>,
    #[schema(schema_with = crate::openapi::prompt_schema)]
    pub prompt: Prompts,
    #[schema(minimum = 1)]
    pub best_of: Option<usize>,
    /// The prompt stands before the answer.
    #[schema(default = false)]
    #[serde(default)]
    pub echo: bool,
    /// Log-probabilities of each token, with this many alternatives.
    #[schema(minimum = 0, maximum = 20)]
    pub logprobs: Option<usize>,
    #[schema(default = true)]
    #[serde(default)]
    pub add_special_tokens: bool,
    #[serde(flatten)]
    pub generation: Generation,
    #[serde(flatten)]
    pub constraint: ConstraintFields,
}

/// Ignoring one of these would give an answer that breaks what the caller relies on.
const UNBUILT: [&str; 3] = ["suffix", "prompt_embeds", "use_beam_search"];

impl CompletionRequest {
    pub fn parse(fields: &Fields<'_>) -> Result<CompletionRequest, ApiError> {
        let prompt = fields.get("prompt", Prompts::EXPECTED)?.ok_or_else(|| {
            ApiError::bad(
                "prompt",
                format!("prompt is missing: {}", Prompts::EXPECTED),
            )
        })?;
        if let Some(field) = UNBUILT.into_iter().find(|name| fields.says_something(name)) {
            return Err(ApiError::bad(field, format!("{field} is not supported")));
        }
        Ok(CompletionRequest {
            model: fields.get("model", "a string")?,
            prompt,
            best_of: fields.count("best_of")?,
            echo: fields.flag("echo", false)?,
            logprobs: fields.count("logprobs")?,
            add_special_tokens: fields.flag("add_special_tokens", true)?,
            generation: Generation::parse(fields)?,
            constraint: ConstraintFields::parse(fields)?,
        })
    }

    /// The rules that neither the engine nor `Generation` knows.
    pub fn validate(&self, app: &crate::App) -> Result<(), ApiError> {
        self.generation.validate(app)?;
        let n = self.generation.n;
        if let Some(best_of) = self.best_of.filter(|best_of| *best_of != n) {
            let message = format!("best_of is {best_of} and n is {n}: they must be equal");
            return refuse("best_of", message);
        }
        let choices = n.saturating_mul(self.prompt.len());
        if n <= mettle_engine::MAX_CHOICES && choices > MOST_CHOICES {
            return refuse(
                "prompt",
                format!("{choices} answers are asked for at once, at most {MOST_CHOICES} can be"),
            );
        }
        if self.generation.max_tokens == Some(0) && !self.echo {
            return refuse(
                "max_tokens",
                "max_tokens is 0, which is allowed with echo only",
            );
        }
        check_logprobs(app, "logprobs", self.logprobs)
    }
}

/// A completion, or a part of one.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompletionResponse {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub struct CompletionChoice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<LegacyLogprobs>,
    /// `null` in a part that is not the last.
    pub finish_reason: Option<&'static str>,
    /// The stop string or token id that ended it; null for the model's own end.
    pub stop_reason: Option<StopReason>,
    /// One entry per prompt token, by token id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptLogprobsInJson>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

pub type PromptLogprobs = Vec<Option<BTreeMap<u32, PromptToken>>>;

/// The same as JSON has it, whose names are strings.
pub type PromptLogprobsInJson = Vec<Option<BTreeMap<String, PromptToken>>>;
