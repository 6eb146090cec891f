//! Owns the shapes of a completion on the wire, request and response.

use super::logprobs::{LegacyLogprobs, PromptToken};
use super::prompt::Prompts;
use crate::error::ApiError;
use crate::fields::Fields;
use serde::Serialize;
use std::collections::BTreeMap;

/// A request as it was written: of the right types, not yet known to make sense.
#[derive(Debug)]
pub struct CompletionRequest {
    pub model: Option<String>,
    pub prompts: Prompts,
    pub max_tokens: Option<usize>,
    pub min_tokens: usize,
    pub n: usize,
    pub best_of: Option<usize>,
    pub echo: bool,
    pub logprobs: Option<usize>,
    pub prompt_logprobs: Option<usize>,
    pub stop: Vec<String>,
    pub stop_token_ids: Vec<u32>,
    pub include_stop: bool,
    pub ignore_eos: bool,
    pub skip_special: bool,
    pub add_special: bool,
    pub truncate_prompt_tokens: Option<i64>,
    pub return_token_ids: bool,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<i64>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub logit_bias: BTreeMap<String, f32>,
    pub seed: Option<i64>,
    pub cache_salt: Option<String>,
    pub stream: bool,
    pub has_stream_options: bool,
    /// A field that would constrain the answer in a way that is not built yet.
    pub unbuilt: Option<&'static str>,
}

/// Ignoring one of these would give an answer that breaks what the caller relies on.
const UNBUILT: [&str; 10] = [
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "bad_words",
    "allowed_token_ids",
    "suffix",
    "prompt_embeds",
    "use_beam_search",
];

impl CompletionRequest {
    pub fn parse(fields: &Fields<'_>) -> Result<CompletionRequest, ApiError> {
        let prompts = fields.get("prompt", Prompts::EXPECTED)?.ok_or_else(|| {
            ApiError::bad(
                "prompt",
                format!("prompt is missing: {}", Prompts::EXPECTED),
            )
        })?;
        Ok(CompletionRequest {
            model: fields.get("model", "a string")?,
            prompts,
            max_tokens: fields.count("max_tokens")?,
            min_tokens: fields.count("min_tokens")?.unwrap_or(0),
            n: fields.count("n")?.unwrap_or(1),
            best_of: fields.count("best_of")?,
            echo: fields.flag("echo", false)?,
            logprobs: fields.count("logprobs")?,
            prompt_logprobs: fields.count("prompt_logprobs")?,
            stop: stop_strings(fields)?,
            stop_token_ids: fields
                .get("stop_token_ids", "a list of token ids")?
                .unwrap_or_default(),
            include_stop: fields.flag("include_stop_str_in_output", false)?,
            ignore_eos: fields.flag("ignore_eos", false)?,
            skip_special: fields.flag("skip_special_tokens", true)?,
            add_special: fields.flag("add_special_tokens", true)?,
            truncate_prompt_tokens: fields.integer("truncate_prompt_tokens")?,
            return_token_ids: fields.flag("return_token_ids", false)?,
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            top_k: fields.integer("top_k")?,
            min_p: fields.number("min_p")?,
            repetition_penalty: fields.number("repetition_penalty")?,
            presence_penalty: fields.number("presence_penalty")?.unwrap_or(0.0),
            frequency_penalty: fields.number("frequency_penalty")?.unwrap_or(0.0),
            logit_bias: fields
                .get("logit_bias", "an object of token ids and numbers")?
                .unwrap_or_default(),
            seed: fields.integer("seed")?,
            cache_salt: fields.get("cache_salt", "a string")?,
            stream: fields.flag("stream", false)?,
            has_stream_options: fields.says_something("stream_options"),
            unbuilt: unbuilt(fields)?,
        })
    }
}

fn stop_strings(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let expected = "a string or a list of strings";
    if let Ok(one) = fields.get::<String>("stop", expected) {
        return Ok(one.into_iter().collect());
    }
    Ok(fields.get("stop", expected)?.unwrap_or_default())
}

fn unbuilt(fields: &Fields<'_>) -> Result<Option<&'static str>, ApiError> {
    #[derive(serde::Deserialize)]
    struct Format {
        r#type: String,
    }
    let format: Option<Format> = fields.get("response_format", "an object with a type")?;
    if format.is_some_and(|format| format.r#type != "text") {
        return Ok(Some("response_format"));
    }
    Ok(UNBUILT.into_iter().find(|name| fields.says_something(name)))
}

#[derive(Debug, Serialize)]
pub struct CompletionResponse {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<Choice>,
    pub usage: Usage,
}

#[derive(Debug, Serialize)]
pub struct Choice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<LegacyLogprobs>,
    pub finish_reason: &'static str,
    /// The stop string or token id that ended it; null for the model's own end.
    pub stop_reason: Option<StopReason>,
    /// One entry per prompt token, by token id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<BTreeMap<u32, PromptToken>>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StopReason {
    Text(String),
    Id(u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
    pub prompt_tokens_details: PromptTokensDetails,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    pub cached_tokens: usize,
}
