//! Owns how answers are drawn: flags, then what the model's makers say, then greedy.

use crate::args::SamplingArgs;
use crate::session::Session;
use anyhow::{Context, bail};
use mettle_engine::{Answer, AnswerOptions, Request, SamplingParams};
use mettle_text::{GenerationDefaults, StopStrings};
use std::sync::Arc;

pub fn params(
    args: &SamplingArgs,
    defaults: &GenerationDefaults,
    seed: Option<u64>,
) -> SamplingParams {
    let greedy = SamplingParams::default();
    let default_k = defaults.top_k.map_or(greedy.top_k, |k| k as usize);
    SamplingParams {
        temperature: args
            .temperature
            .or(defaults.temperature)
            .unwrap_or(greedy.temperature),
        top_k: args.top_k.unwrap_or(default_k),
        top_p: args.top_p.or(defaults.top_p).unwrap_or(greedy.top_p),
        min_p: args.min_p.or(defaults.min_p).unwrap_or(greedy.min_p),
        repetition_penalty: args
            .repetition_penalty
            .or(defaults.repetition_penalty)
            .unwrap_or(greedy.repetition_penalty),
        presence_penalty: args.presence_penalty.unwrap_or(greedy.presence_penalty),
        frequency_penalty: args.frequency_penalty.unwrap_or(greedy.frequency_penalty),
        seed,
        ..greedy
    }
}

/// Asks the engine to continue `prompt`.
pub fn ask(
    session: &Session,
    args: &SamplingArgs,
    seed: Option<u64>,
    prompt: Vec<u32>,
) -> anyhow::Result<Answer> {
    let model = &session.model;
    let limits = session.engine.limits();
    let (context, room) = (limits.context, limits.answer_to(prompt.len()));
    if room == 0 {
        bail!(
            "the prompt has {} tokens and the context holds {context}, the answer included: shorten it, or give more --max-model-len or --kv-memory",
            prompt.len()
        );
    }
    let max_tokens = args.max_tokens.map_or(room, |asked| asked.min(room));
    let stop = StopStrings::new(args.stop.iter().cloned()).context("--stop")?;
    let request = Request {
        sampling: params(args, &model.generation, seed),
        eos_ids: model.eos_ids.clone(),
        ..Request::new(prompt, max_tokens)
    };
    let stream = session.engine.submit(request)?;
    let options = AnswerOptions {
        stop: Arc::new(stop),
        skip_special: true,
        ..AnswerOptions::default()
    };
    Ok(Answer::new(stream, session.tokenizer.clone(), options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_model_and_the_model_over_greedy() {
        let none = SamplingArgs::default();
        let silent = GenerationDefaults::default();
        assert_eq!(params(&none, &silent, None), SamplingParams::default());
        let makers = GenerationDefaults {
            temperature: Some(0.6),
            top_k: Some(20),
            top_p: Some(0.95),
            ..GenerationDefaults::default()
        };
        let flags = SamplingArgs {
            temperature: Some(0.0),
            ..SamplingArgs::default()
        };
        let params = params(&flags, &makers, Some(7));
        assert_eq!(
            (params.temperature, params.top_k, params.top_p, params.seed),
            (0.0, 20, 0.95, Some(7))
        );
    }
}
