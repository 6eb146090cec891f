//! Owns the way from a request on the wire to requests for the engine, one per prompt, each checked against its limits.

use super::prompt::Prompts;
use super::types::CompletionRequest;
use crate::app::App;
use crate::error::ApiError;
use mettle_engine::{AnswerOptions, Request, SamplingParams};
use mettle_text::{SpecialTokens, StopStrings};
use std::sync::Arc;

/// Tokens of an answer where the request says nothing.
const DEFAULT_MAX_TOKENS: usize = 16;
/// A bias beyond this changes nothing any more.
const LARGEST_BIAS: f32 = 100.0;

/// One prompt, ready for the engine `answers` times.
#[derive(Debug)]
pub struct PromptJob {
    pub request: Request,
    pub answers: usize,
    pub options: AnswerOptions,
    /// The prompt's text, where it is to stand before the answer.
    pub echo: Option<String>,
    pub logprobs: Option<usize>,
    pub prompt_logprobs: bool,
    pub return_token_ids: bool,
}

impl CompletionRequest {
    pub fn into_prompts(self, app: &App) -> Result<Vec<PromptJob>, ApiError> {
        app.check_model(self.model.as_deref())?;
        let options = AnswerOptions {
            stop: Arc::new(StopStrings::new(self.stop.clone())?),
            include_stop: self.include_stop,
            skip_special: self.skip_special,
            min_tokens: self.min_tokens,
        };
        let sampling = self.sampling(app)?;
        let job = |ids: Vec<u32>, text: Option<&str>| {
            let (prompt, is_cut) = self.truncate(ids, app);
            let request = self.request(prompt, sampling.clone(), app);
            request.validate(app.engine.limits())?;
            let echo = self.echo.then(|| match text.filter(|_| !is_cut) {
                Some(text) => text.to_owned(),
                None => app.tokenizer.decode(&request.prompt, false),
            });
            Ok(PromptJob {
                request,
                answers: self.n,
                options: options.clone(),
                echo,
                logprobs: self.logprobs,
                prompt_logprobs: self.prompt_logprobs.is_some(),
                return_token_ids: self.return_token_ids,
            })
        };
        match &self.prompts {
            Prompts::Ids(lists) => lists.iter().map(|ids| job(ids.clone(), None)).collect(),
            Prompts::Texts(texts) => texts
                .iter()
                .map(|text| {
                    let ids = app.encode(text, SpecialTokens::Parse, self.add_special)?;
                    job(ids, Some(text))
                })
                .collect(),
        }
    }

    /// The last tokens of the prompt, where the caller allows cutting; whether any were cut.
    fn truncate(&self, mut ids: Vec<u32>, app: &App) -> (Vec<u32>, bool) {
        let room = app.engine.limits().context - 1;
        let keep = match self.truncate_prompt_tokens {
            None => return (ids, false),
            Some(tokens) => usize::try_from(tokens).unwrap_or(room),
        };
        let cut = ids.len().saturating_sub(keep);
        ids.drain(..cut);
        (ids, cut > 0)
    }

    fn sampling(&self, app: &App) -> Result<SamplingParams, ApiError> {
        let defaults = &app.options.generation;
        let default_k = i64::from(defaults.top_k.unwrap_or(0));
        Ok(SamplingParams {
            temperature: self.temperature.or(defaults.temperature).unwrap_or(1.0),
            top_k: usize::try_from(self.top_k.unwrap_or(default_k)).unwrap_or(0),
            top_p: self.top_p.or(defaults.top_p).unwrap_or(1.0),
            min_p: self.min_p.or(defaults.min_p).unwrap_or(0.0),
            repetition_penalty: self
                .repetition_penalty
                .or(defaults.repetition_penalty)
                .unwrap_or(1.0),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.biases()?,
            // Any integer is a seed, negative ones too.
            seed: self.seed.map(|seed| seed as u64),
            ..SamplingParams::default()
        })
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

    fn request(&self, prompt: Vec<u32>, sampling: SamplingParams, app: &App) -> Request {
        let room = app.engine.limits().context.saturating_sub(prompt.len());
        // A prompt that leaves no room is refused by its numbers, not cut.
        let default = DEFAULT_MAX_TOKENS.min(room.max(1));
        let max_tokens = self.max_tokens.unwrap_or(default);
        let echoed = self.logprobs.filter(|_| self.echo);
        // The prompt alone is an answer too: the engine then has its log-probabilities to give.
        let nothing_else = (max_tokens == 0).then_some(0);
        Request {
            max_tokens,
            min_tokens: self.min_tokens,
            sampling,
            eos_ids: app.options.eos_ids.clone(),
            ignore_eos: self.ignore_eos,
            stop_ids: self.stop_token_ids.clone(),
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs.max(echoed).or(nothing_else),
            cache_salt: self.cache_salt.clone(),
            ..Request::new(prompt, max_tokens)
        }
    }
}
