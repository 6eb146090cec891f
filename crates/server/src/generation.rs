//! Owns what every request for text has in common: limits, stops, sampling. Field names are those on the wire.

use crate::app::App;
use crate::error::ApiError;
use crate::fields::Fields;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Each is looked for in every token of the answer.
const MOST_STOPS: usize = 256;

/// A request's own wishes: of the right types, not yet known to make sense. Start from `default`.
#[derive(Clone, Debug, ToSchema)]
#[serde(default)]
pub struct Generation {
    /// Answers to each prompt.
    #[schema(minimum = 1, maximum = 128, default = 1)]
    pub n: usize,
    /// Tokens of an answer at the most.
    pub max_tokens: Option<usize>,
    #[schema(default = 0)]
    pub min_tokens: usize,
    /// A text, or several, before which the answer ends.
    #[schema(schema_with = crate::openapi::texts_schema)]
    pub stop: Vec<String>,
    pub stop_token_ids: Vec<u32>,
    #[schema(default = false)]
    pub include_stop_str_in_output: bool,
    #[schema(default = false)]
    pub ignore_eos: bool,
    #[schema(default = true)]
    pub skip_special_tokens: bool,
    #[schema(minimum = 0, maximum = 2)]
    pub temperature: Option<f32>,
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub top_p: Option<f32>,
    /// 0 and -1 keep all tokens.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    #[schema(minimum = 0, maximum = 1)]
    pub min_p: Option<f32>,
    #[schema(exclusive_minimum = 0, maximum = 1)]
    pub typical_p: Option<f32>,
    #[schema(exclusive_minimum = 0)]
    pub repetition_penalty: Option<f32>,
    #[schema(minimum = -2, maximum = 2, default = 0.0)]
    pub presence_penalty: f32,
    #[schema(minimum = -2, maximum = 2, default = 0.0)]
    pub frequency_penalty: f32,
    /// Numbers added to the logits of tokens, by token id.
    pub logit_bias: BTreeMap<String, f32>,
    /// Texts that the answer never holds.
    pub bad_words: Vec<String>,
    /// No other token is possible.
    pub allowed_token_ids: Option<Vec<u32>>,
    pub seed: Option<i64>,
    /// Lower numbers run sooner.
    #[schema(default = 0)]
    pub priority: i32,
    /// Prefixes are shared only between requests with the same salt.
    pub cache_salt: Option<String>,
    /// Keeps the last tokens of a prompt; -1 keeps as many as fit.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    /// Log-probabilities of the prompt's tokens, with this many alternatives; not with `stream`.
    #[schema(minimum = 0, maximum = 20)]
    pub prompt_logprobs: Option<usize>,
    #[schema(default = false)]
    pub return_token_ids: bool,
    /// Becomes part of the answer's id; the header `X-Request-Id` wins.
    pub request_id: Option<String>,
    #[schema(default = false)]
    pub stream: bool,
    pub stream_options: Option<StreamOptions>,
}

#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize, ToSchema)]
pub struct StreamOptions {
    /// One more chunk at the end, with no choice and all tokens counted.
    #[serde(default)]
    pub include_usage: Option<bool>,
    /// The tokens so far in every chunk.
    #[serde(default)]
    pub continuous_usage_stats: Option<bool>,
}

impl Default for Generation {
    fn default() -> Generation {
        Generation {
            n: 1,
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            include_stop_str_in_output: false,
            ignore_eos: false,
            skip_special_tokens: true,
            temperature: None,
            top_p: None,
            top_k: None,
            min_p: None,
            typical_p: None,
            repetition_penalty: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            bad_words: Vec::new(),
            allowed_token_ids: None,
            seed: None,
            priority: 0,
            cache_salt: None,
            truncate_prompt_tokens: None,
            prompt_logprobs: None,
            return_token_ids: false,
            request_id: None,
            stream: false,
            stream_options: None,
        }
    }
}

impl Generation {
    pub fn parse(fields: &Fields<'_>) -> Result<Generation, ApiError> {
        let ids = "a list of token ids";
        Ok(Generation {
            n: fields.count("n")?.unwrap_or(1),
            max_tokens: fields.count("max_tokens")?,
            min_tokens: fields.count("min_tokens")?.unwrap_or(0),
            stop: fields.texts("stop")?,
            stop_token_ids: fields.get("stop_token_ids", ids)?.unwrap_or_default(),
            include_stop_str_in_output: fields.flag("include_stop_str_in_output", false)?,
            ignore_eos: fields.flag("ignore_eos", false)?,
            skip_special_tokens: fields.flag("skip_special_tokens", true)?,
            temperature: fields.number("temperature")?,
            top_p: fields.number("top_p")?,
            top_k: fields.integer("top_k")?,
            min_p: fields.number("min_p")?,
            typical_p: fields.number("typical_p")?,
            repetition_penalty: fields.number("repetition_penalty")?,
            presence_penalty: fields.number("presence_penalty")?.unwrap_or(0.0),
            frequency_penalty: fields.number("frequency_penalty")?.unwrap_or(0.0),
            logit_bias: fields
                .get("logit_bias", "an object of token ids and numbers")?
                .unwrap_or_default(),
            bad_words: fields
                .get("bad_words", "a list of strings")?
                .unwrap_or_default(),
            allowed_token_ids: fields.get("allowed_token_ids", ids)?,
            seed: fields.integer("seed")?,
            priority: priority(fields)?,
            cache_salt: fields.get("cache_salt", "a string")?,
            truncate_prompt_tokens: fields.integer("truncate_prompt_tokens")?,
            prompt_logprobs: fields.count("prompt_logprobs")?,
            return_token_ids: fields.flag("return_token_ids", false)?,
            request_id: fields.get("request_id", "a string")?,
            stream: fields.flag("stream", false)?,
            stream_options: fields.get(
                "stream_options",
                "an object with include_usage and continuous_usage_stats",
            )?,
        })
    }

    /// The rules that the engine does not know; the others are `Request::validate`'s.
    pub fn validate(&self, app: &App) -> Result<(), ApiError> {
        if self.stream_options.is_some() && !self.stream {
            return refuse("stream_options", "stream_options needs stream: true");
        }
        if self.stream && self.prompt_logprobs.is_some() {
            return refuse(
                "prompt_logprobs",
                "prompt_logprobs are not given with stream: true",
            );
        }
        if let Some(top_k) = self.top_k.filter(|top_k| *top_k < -1) {
            let message = format!("top_k is {top_k}, it must be -1, 0 or above");
            return refuse("top_k", message);
        }
        if let Some(tokens) = self.truncate_prompt_tokens.filter(|n| *n < -1 || *n == 0) {
            return refuse(
                "truncate_prompt_tokens",
                format!("truncate_prompt_tokens is {tokens}, it must be -1 or above 0"),
            );
        }
        for (name, texts) in [("stop", &self.stop), ("bad_words", &self.bad_words)] {
            if texts.iter().any(String::is_empty) {
                return refuse(name, format!("a text in {name} must not be empty"));
            }
            let count = texts.len();
            if count > MOST_STOPS {
                let message = format!("{name} has {count} entries, it may have {MOST_STOPS}");
                return refuse(name, message);
            }
        }
        check_logprobs(app, "prompt_logprobs", self.prompt_logprobs)
    }

    /// What the stream says of tokens: in a last chunk, and in every chunk.
    pub fn usage_in_stream(&self) -> (bool, bool) {
        let options = self.stream_options.unwrap_or_default();
        let at_end = options.include_usage.unwrap_or(false);
        (
            at_end,
            at_end && options.continuous_usage_stats.unwrap_or(false),
        )
    }
}

pub fn priority(fields: &Fields<'_>) -> Result<i32, ApiError> {
    let given = fields.integer("priority")?.unwrap_or(0);
    i32::try_from(given).map_err(|_| {
        let message = format!(
            "priority is {given}, it must be between {} and {}",
            i32::MIN,
            i32::MAX
        );
        ApiError::bad("priority", message)
    })
}

pub fn check_logprobs(app: &App, name: &str, count: Option<usize>) -> Result<(), ApiError> {
    let most = app.options.max_logprobs;
    match count.filter(|count| *count > most) {
        Some(count) => refuse(
            name,
            format!("{name} is {count}, at most {most} can be given"),
        ),
        None => Ok(()),
    }
}

pub fn refuse(param: &str, message: impl Into<String>) -> Result<(), ApiError> {
    Err(ApiError::bad(param, message))
}
