//! Owns what a caller asks for, and the checks that it can be answered at all.

use crate::constraint::TokenConstraint;
use crate::error::EngineError;
use crate::pager::Footprint;
use crate::pooling::Pooling;
use crate::sampler::{SamplingParams, check_count, check_ids};
use std::time::Instant;

/// The most alternatives that may be asked for with each token.
pub const MAX_LOGPROBS: usize = 20;

/// The most choices that one request may ask for.
pub const MAX_CHOICES: usize = 128;

/// One prompt and how to continue it. Start from [`Request::new`] and set what differs.
#[derive(Clone, Debug)]
pub struct Request {
    pub prompt: Vec<u32>,
    /// Answers to make. The prompt is computed once and its pages are shared. Each choice draws with a seed of its own,
    /// the first with the request's.
    pub n: usize,
    /// Lower numbers run sooner; equal ones in the order they came.
    pub priority: i32,
    /// When it is too late: whatever is unfinished then ends with `FinishReason::Deadline`, after the step under way.
    pub deadline: Option<Instant>,
    /// What the output must follow; a copy for each choice.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    pub sampling: SamplingParams,
    /// Tokens to make at the most. 0 is allowed with `prompt_logprobs`.
    pub max_tokens: usize,
    /// End-of-sequence tokens and stop ids are impossible before this many tokens are made.
    pub min_tokens: usize,
    /// The model's own end tokens.
    pub eos_ids: Vec<u32>,
    /// End tokens do not end the request.
    pub ignore_eos: bool,
    /// At most [`MAX_LISTED`](crate::MAX_LISTED).
    pub stop_ids: Vec<u32>,
    /// Log-probabilities of each token made, with this many alternatives.
    pub logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens, with this many alternatives. Such a request does not read the prefix
    /// cache: every position has to be computed.
    pub prompt_logprobs: Option<usize>,
    /// The prompt as one vector, in place of tokens. A mean does not read the prefix cache.
    pub pooling: Option<Pooling>,
    /// Prefixes are shared only between requests with the same salt.
    pub cache_salt: Option<String>,
}

impl Request {
    /// Greedy, no end tokens, nothing else asked for.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Request {
        Request {
            prompt,
            n: 1,
            priority: 0,
            deadline: None,
            constraint: None,
            sampling: SamplingParams::default(),
            max_tokens,
            min_tokens: 0,
            eos_ids: Vec::new(),
            ignore_eos: false,
            stop_ids: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            pooling: None,
            cache_salt: None,
        }
    }

    /// The prompt's hidden states as one vector, nothing else.
    pub fn pooled(prompt: Vec<u32>, pooling: Pooling) -> Request {
        Request {
            pooling: Some(pooling),
            ..Request::new(prompt, 0)
        }
    }

    /// Whether an engine with these limits can answer; the error has the numbers.
    pub fn validate(&self, limits: &Limits) -> Result<(), EngineError> {
        if self.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let (prompt, max_tokens) = (self.prompt.len(), self.max_tokens);
        if let Some(encoder) = &limits.encoder {
            let (encoder, decoder) = (encoder.tokens, limits.context - 1);
            if prompt > encoder || max_tokens > decoder {
                return Err(EngineError::EncoderOverflow {
                    prompt,
                    max_tokens,
                    encoder,
                    decoder,
                });
            }
            if self.prompt_logprobs.is_some() {
                return Err(EngineError::PromptIsEncoded);
            }
        } else if prompt.saturating_add(max_tokens) > limits.context {
            return Err(EngineError::ContextOverflow {
                prompt,
                max_tokens,
                context: limits.context,
            });
        }
        check_ids("prompt", &self.prompt, limits.vocabulary)?;
        check_ids("stop_token_ids", &self.stop_ids, limits.vocabulary)?;
        check_count("stop_token_ids", self.stop_ids.len())?;
        if !(1..=MAX_CHOICES).contains(&self.n) {
            return Err(EngineError::OutOfRange {
                name: "n",
                value: self.n.to_string(),
                range: "between 1 and 128",
            });
        }
        self.sampling.validate(limits.vocabulary)?;
        if self.min_tokens > max_tokens {
            return Err(EngineError::MinAboveMax {
                min_tokens: self.min_tokens,
                max_tokens,
            });
        }
        if self.pooling.is_some() {
            self.validate_pooling(limits)?;
        } else if !limits.gives_logits {
            return Err(EngineError::OnlyPools);
        } else if max_tokens == 0 && self.prompt_logprobs.is_none() {
            return Err(EngineError::NothingAsked);
        }
        for (name, count) in [
            ("logprobs", self.logprobs),
            ("prompt_logprobs", self.prompt_logprobs),
        ] {
            if let Some(count) = count.filter(|c| *c > MAX_LOGPROBS) {
                return Err(EngineError::OutOfRange {
                    name,
                    value: count.to_string(),
                    range: "at most 20",
                });
            }
        }
        let (given, encoded) = match limits.encoder {
            Some(_) => (1, prompt),
            None => (prompt, 0),
        };
        let cached = given + max_tokens.saturating_sub(1);
        let needed = limits.footprint.pages_at_most(cached, encoded);
        let pages = limits.footprint.pages();
        if needed > pages {
            return Err(EngineError::CacheTooSmall {
                prompt,
                max_tokens,
                needed,
                pages,
            });
        }
        Ok(())
    }

    fn validate_pooling(&self, limits: &Limits) -> Result<(), EngineError> {
        let is_alone = self.n == 1
            && self.max_tokens == 0
            && self.prompt_logprobs.is_none()
            && self.constraint.is_none();
        match (is_alone, limits.gives_hidden) {
            (false, _) => Err(EngineError::PoolingAndTokens),
            (true, false) => Err(EngineError::NoHidden),
            (true, true) => Ok(()),
        }
    }
}

/// An encoder reads prompts, and a decoder answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderLimits {
    /// The longest prompt: it is read in one step.
    pub tokens: usize,
    /// The token that every answer starts behind.
    pub start: u32,
}

/// What an engine can answer; fixed when it starts.
#[derive(Clone, Debug)]
pub struct Limits {
    pub vocabulary: usize,
    /// Tokens of prompt and answer together; with an encoder, what the decoder starts from and the answer.
    pub context: usize,
    pub encoder: Option<EncoderLimits>,
    pub footprint: Footprint,
    /// Logits can be had, so requests may ask for tokens.
    pub gives_logits: bool,
    /// Hidden states can be had, so requests may ask for pooling.
    pub gives_hidden: bool,
}

impl Limits {
    /// The longest answer to a prompt of so many tokens; 0 where the prompt alone is too long.
    pub fn answer_to(&self, prompt: usize) -> usize {
        match &self.encoder {
            Some(_) => self.context - 1,
            None => self.context.saturating_sub(prompt),
        }
    }

    /// The longest prompt that leaves room for an answer.
    pub fn longest_prompt(&self) -> usize {
        match &self.encoder {
            Some(encoder) => encoder.tokens,
            None => self.context - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use mettle_plan::{GroupPages, PageLayout, Retention};

    fn limits() -> Limits {
        let group = GroupPages {
            retention: Retention::Full,
            tokens_per_page: 16,
            pages_per_state: 0,
        };
        let layout = PageLayout {
            page_bytes: 64,
            groups: vec![group],
        };
        Limits {
            vocabulary: 100,
            context: 4096,
            encoder: None,
            footprint: Footprint::new(layout, 100, 512),
            gives_logits: true,
            gives_hidden: true,
        }
    }

    fn check(change: impl FnOnce(&mut Request), message: Expect) {
        let mut request = Request::new(vec![1, 2, 3], 10);
        change(&mut request);
        let error = request.validate(&limits()).expect_err("must be refused");
        assert!(error.is_callers_fault(), "{error}");
        message.assert_eq(&error.to_string());
    }

    #[test]
    fn a_plain_request_is_valid() {
        let mut request = Request::new(vec![0, 99], 10);
        assert_eq!(request.validate(&limits()), Ok(()));
        request.max_tokens = 0;
        request.prompt_logprobs = Some(20);
        assert_eq!(request.validate(&limits()), Ok(()));
        // 100 pages of 16 tokens, and the last token is never computed.
        request = Request::new(vec![5; 1500], 101);
        assert_eq!(request.validate(&limits()), Ok(()));
    }

    /// At the limit, one below and one above; above is refused.
    #[test]
    fn limits_are_where_they_are_said_to_be() {
        type Set = fn(&mut Request, usize);
        let cases: [(Set, usize); 8] = [
            (|r, v| r.n = v, MAX_CHOICES),
            (|r, v| r.logprobs = Some(v), MAX_LOGPROBS),
            (|r, v| r.prompt_logprobs = Some(v), MAX_LOGPROBS),
            (|r, v| r.stop_ids = vec![1; v], crate::MAX_LISTED),
            (
                |r, v| r.sampling.bad_words = vec![vec![1]; v],
                crate::MAX_LISTED,
            ),
            // The context holds 4096, of which the prompt has 3; but 100 pages hold 1600, and one token more is made.
            (|r, v| r.max_tokens = v, 1598),
            (|r, v| r.min_tokens = v, 10),
            (|r, v| r.prompt[0] = v as u32, 99),
        ];
        for (index, (set, limit)) in cases.into_iter().enumerate() {
            for (value, is_fine) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
                let mut request = Request::new(vec![1, 2, 3], 10);
                set(&mut request, value);
                let outcome = request.validate(&limits());
                assert_eq!(
                    outcome.is_ok(),
                    is_fine,
                    "case {index}, {value}: {outcome:?}"
                );
            }
        }
        for (context, is_fine) in [(12, false), (13, true), (14, true)] {
            let limits = Limits {
                context,
                ..limits()
            };
            let request = Request::new(vec![1, 2, 3], 10);
            assert_eq!(request.validate(&limits).is_ok(), is_fine, "{context}");
        }
    }

    #[test]
    fn every_refusal_carries_its_numbers() {
        check(|r| r.prompt.clear(), expect!["the prompt is empty"]);
        check(
            |r| {
                r.prompt = vec![1; 5000];
                r.max_tokens = 200;
            },
            expect!["prompt has 5000 tokens and asks for 200 more, the context holds 4096"],
        );
        check(
            |r| r.max_tokens = usize::MAX,
            expect![
                "prompt has 3 tokens and asks for 18446744073709551615 more, the context holds 4096"
            ],
        );
        check(
            |r| r.prompt = vec![1; 1600],
            expect![
                "prompt has 1600 tokens and asks for 10 more, which takes up to 101 pages of the KV cache; it has 100"
            ],
        );
        check(
            |r| r.prompt.push(100),
            expect!["prompt holds token id 100, the vocabulary ends at 99"],
        );
        check(
            |r| r.stop_ids.push(u32::MAX),
            expect!["stop_token_ids holds token id 4294967295, the vocabulary ends at 99"],
        );
        check(
            |r| r.sampling.logit_bias.push((100, 1.0)),
            expect!["logit_bias holds token id 100, the vocabulary ends at 99"],
        );
        check(
            |r| r.sampling.logit_bias.push((1, f32::INFINITY)),
            expect!["logit_bias is inf, it must be a finite number"],
        );
        check(
            |r| r.min_tokens = 11,
            expect!["min_tokens is 11, which is above max_tokens (10)"],
        );
        check(
            |r| r.max_tokens = 0,
            expect![
                "max_tokens is 0, which needs prompt_logprobs: else there is nothing to answer"
            ],
        );
        check(
            |r| r.logprobs = Some(21),
            expect!["logprobs is 21, it must be at most 20"],
        );
        check(
            |r| r.prompt_logprobs = Some(21),
            expect!["prompt_logprobs is 21, it must be at most 20"],
        );
        check(|r| r.n = 0, expect!["n is 0, it must be between 1 and 128"]);
        check(
            |r| r.n = 129,
            expect!["n is 129, it must be between 1 and 128"],
        );
        check(
            |r| r.stop_ids = vec![1; 1025],
            expect!["stop_token_ids is a list of 1025, it must be at most 1024 long"],
        );
        check(
            |r| r.sampling.bad_words = vec![vec![1]; 1025],
            expect!["bad_words is a list of 1025, it must be at most 1024 long"],
        );
        check(
            |r| r.sampling.bad_words = vec![vec![1], vec![]],
            expect!["bad_words holds an empty list, which says nothing"],
        );
        check(
            |r| r.sampling.bad_words = vec![vec![1, 100]],
            expect!["bad_words holds token id 100, the vocabulary ends at 99"],
        );
        check(
            |r| r.sampling.allowed_token_ids = Some(vec![]),
            expect!["allowed_token_ids holds an empty list, which says nothing"],
        );
        check(
            |r| r.sampling.allowed_token_ids = Some(vec![99, 100]),
            expect!["allowed_token_ids holds token id 100, the vocabulary ends at 99"],
        );
    }

    #[test]
    fn pooling_goes_with_nothing_else_and_not_on_every_device() {
        let mut pooled = Request::pooled(vec![1, 2, 3], Pooling::Last);
        assert_eq!(pooled.validate(&limits()), Ok(()));
        let without = Limits {
            gives_hidden: false,
            ..limits()
        };
        let error = pooled.validate(&without).unwrap_err();
        assert!(!error.is_callers_fault(), "{error}");
        type Set = fn(&mut Request);
        let encoder = Limits {
            gives_logits: false,
            ..limits()
        };
        assert_eq!(pooled.validate(&encoder), Ok(()));
        let error = Request::new(vec![1], 1).validate(&encoder).unwrap_err();
        assert_eq!(error, EngineError::OnlyPools);
        assert!(error.is_callers_fault());
        let more: [Set; 3] = [
            |r| r.n = 2,
            |r| r.max_tokens = 1,
            |r| r.prompt_logprobs = Some(0),
        ];
        for set in more {
            let mut request = pooled.clone();
            set(&mut request);
            let error = request.validate(&limits()).unwrap_err();
            assert_eq!(error, EngineError::PoolingAndTokens);
        }
        // The whole context may be prompt: nothing follows it.
        pooled.prompt = vec![1; 100];
        let tight = |context| Limits {
            context,
            ..limits()
        };
        assert_eq!(pooled.validate(&tight(100)), Ok(()));
        let error = pooled.validate(&tight(99)).unwrap_err();
        assert!(matches!(error, EngineError::ContextOverflow { .. }));
    }

    #[test]
    fn parameters_outside_their_ranges_are_refused() {
        type Set = fn(&mut SamplingParams, f32);
        let cases: [(Set, &[f32], &[f32]); 7] = [
            (|s, v| s.temperature = v, &[0.0, 1e-6, 2.0], &[-0.1, 2.1]),
            (|s, v| s.top_p = v, &[1e-9, 1.0], &[0.0, -1.0, 1.1]),
            (|s, v| s.min_p = v, &[0.0, 1.0], &[-0.1, 1.1]),
            (|s, v| s.typical_p = v, &[1e-9, 1.0], &[0.0, -1.0, 1.1]),
            (|s, v| s.repetition_penalty = v, &[0.1, 100.0], &[0.0, -1.0]),
            (|s, v| s.presence_penalty = v, &[-2.0, 2.0], &[-2.1, 2.1]),
            (|s, v| s.frequency_penalty = v, &[-2.0, 2.0], &[-2.1, 2.1]),
        ];
        for (index, (set, good, bad)) in cases.into_iter().enumerate() {
            let outcome = |value: f32| {
                let mut request = Request::new(vec![1], 1);
                set(&mut request.sampling, value);
                request.validate(&limits())
            };
            for value in good {
                assert_eq!(outcome(*value), Ok(()), "case {index}, {value}");
            }
            for value in bad.iter().chain(&[f32::NAN, f32::INFINITY]) {
                assert!(outcome(*value).is_err(), "case {index}, {value}");
            }
        }
    }
}
