//! Owns the way from a request's wishes to what the engine takes: model defaults filled in, texts tokenized.

use crate::app::App;
use crate::error::ApiError;
use crate::generation::Generation;
use mettle_engine::{AnswerOptions, Request, SamplingParams};
use mettle_text::{SpecialTokens, StopStrings};
use std::sync::Arc;
use std::time::Instant;

/// A bias beyond this changes nothing any more.
const LARGEST_BIAS: f32 = 100.0;

impl Generation {
    pub fn answer_options(&self) -> Result<AnswerOptions, ApiError> {
        Ok(AnswerOptions {
            stop: Arc::new(StopStrings::new(self.stop.clone())?),
            include_stop: self.include_stop_str_in_output,
            skip_special: self.skip_special_tokens,
            min_tokens: self.min_tokens,
        })
    }

    /// The last tokens of the prompt, where the caller allows cutting; whether any were cut.
    pub fn truncate(&self, mut ids: Vec<u32>, app: &App) -> (Vec<u32>, bool) {
        let room = app.engine.limits().longest_prompt();
        let keep = match self.truncate_prompt_tokens {
            None => return (ids, false),
            Some(tokens) => usize::try_from(tokens).unwrap_or(room),
        };
        let cut = ids.len().saturating_sub(keep);
        ids.drain(..cut);
        (ids, cut > 0)
    }

    pub fn sampling(&self, app: &App) -> Result<SamplingParams, ApiError> {
        let defaults = &app.options.generation;
        let default_k = i64::from(defaults.top_k.unwrap_or(0));
        Ok(SamplingParams {
            temperature: self.temperature.or(defaults.temperature).unwrap_or(1.0),
            top_k: usize::try_from(self.top_k.unwrap_or(default_k)).unwrap_or(0),
            top_p: self.top_p.or(defaults.top_p).unwrap_or(1.0),
            min_p: self.min_p.or(defaults.min_p).unwrap_or(0.0),
            typical_p: self.typical_p.unwrap_or(1.0),
            repetition_penalty: self
                .repetition_penalty
                .or(defaults.repetition_penalty)
                .unwrap_or(1.0),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.biases()?,
            bad_words: self.bad_sequences(app)?,
            allowed_token_ids: self.allowed_token_ids.clone(),
            // Any integer is a seed, negative ones too.
            seed: self.seed.map(|seed| seed as u64),
        })
    }

    /// A request for the engine. `default_tokens`: how long an answer is where nothing was asked for, given the room.
    pub fn request(
        &self,
        prompt: Vec<u32>,
        sampling: SamplingParams,
        app: &App,
        default_tokens: usize,
    ) -> Request {
        let room = app.engine.limits().answer_to(prompt.len());
        // A prompt that leaves no room is refused by its numbers, not cut.
        let default = default_tokens.min(room.max(1));
        let max_tokens = self.max_tokens.unwrap_or(default);
        let timeout = app.options.request_timeout;
        Request {
            n: self.n,
            priority: self.priority,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            max_tokens,
            min_tokens: self.min_tokens,
            sampling,
            eos_ids: app.options.eos_ids.clone(),
            ignore_eos: self.ignore_eos,
            stop_ids: self.stop_token_ids.clone(),
            prompt_logprobs: self.prompt_logprobs,
            cache_salt: self.cache_salt.clone(),
            ..Request::new(prompt, max_tokens)
        }
    }

    fn biases(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        let mut biases = Vec::with_capacity(self.logit_bias.len());
        for (token, bias) in &self.logit_bias {
            let Ok(id) = token.parse() else {
                let message = format!("logit_bias holds {token:?}, which is no token id");
                return Err(ApiError::bad("logit_bias", message));
            };
            biases.push((id, bias.clamp(-LARGEST_BIAS, LARGEST_BIAS)));
        }
        Ok(biases)
    }

    /// A word may start a text or follow a space; it is bad in both places.
    fn bad_sequences(&self, app: &App) -> Result<Vec<Vec<u32>>, ApiError> {
        let mut sequences = Vec::new();
        for word in &self.bad_words {
            for text in [word.clone(), format!(" {}", word.trim_start())] {
                let ids = app.encode(&text, SpecialTokens::Plain, false)?;
                if !ids.is_empty() && !sequences.contains(&ids) {
                    sequences.push(ids);
                }
            }
        }
        Ok(sequences)
    }
}
