//! Owns the rules of a completion request that the engine does not know; the others are `Request::validate`'s.

use super::types::CompletionRequest;
use crate::error::ApiError;
use mettle_engine::MAX_LOGPROBS;

/// Answers to one prompt.
const MOST_ANSWERS: usize = 128;
/// Each is looked for in every token of the answer.
const MOST_STOPS: usize = 256;
/// Answers in one response, over all prompts.
const MOST_CHOICES: usize = 2048;

impl CompletionRequest {
    pub fn validate(&self) -> Result<(), ApiError> {
        if let Some(field) = self.unbuilt {
            return refuse(field, format!("{field} is not supported yet"));
        }
        if self.stream {
            return refuse("stream", "streaming is not supported yet: leave stream out");
        }
        if self.has_stream_options {
            return refuse("stream_options", "stream_options needs stream: true");
        }
        if self.n == 0 || self.n > MOST_ANSWERS {
            let n = self.n;
            return refuse(
                "n",
                format!("n is {n}, it must be between 1 and {MOST_ANSWERS}"),
            );
        }
        if let Some(best_of) = self.best_of.filter(|best_of| *best_of != self.n) {
            return refuse(
                "best_of",
                format!(
                    "best_of is {best_of} and n is {}: they must be equal",
                    self.n
                ),
            );
        }
        let choices = self.n * self.prompts.len();
        if choices > MOST_CHOICES {
            return refuse(
                "prompt",
                format!("{choices} answers are asked for at once, at most {MOST_CHOICES} can be"),
            );
        }
        if self.max_tokens == Some(0) && !self.echo {
            return refuse(
                "max_tokens",
                "max_tokens is 0, which is allowed with echo only",
            );
        }
        if let Some(top_k) = self.top_k.filter(|top_k| *top_k < -1) {
            return refuse(
                "top_k",
                format!("top_k is {top_k}, it must be -1, 0 or above"),
            );
        }
        if let Some(tokens) = self.truncate_prompt_tokens.filter(|n| *n < -1 || *n == 0) {
            return refuse(
                "truncate_prompt_tokens",
                format!("truncate_prompt_tokens is {tokens}, it must be -1 or above 0"),
            );
        }
        if self.stop.iter().any(String::is_empty) {
            return refuse("stop", "a stop string must not be empty");
        }
        for (name, count) in [
            ("stop", self.stop.len()),
            ("stop_token_ids", self.stop_token_ids.len()),
        ] {
            if count > MOST_STOPS {
                let message = format!("{name} has {count} entries, it may have {MOST_STOPS}");
                return refuse(name, message);
            }
        }
        for (name, count) in [
            ("logprobs", self.logprobs),
            ("prompt_logprobs", self.prompt_logprobs),
        ] {
            if let Some(count) = count.filter(|count| *count > MAX_LOGPROBS) {
                return refuse(
                    name,
                    format!("{name} is {count}, at most {MAX_LOGPROBS} can be given"),
                );
            }
        }
        Ok(())
    }
}

fn refuse(param: &str, message: impl Into<String>) -> Result<(), ApiError> {
    Err(ApiError::bad(param, message))
}
