//! Owns which tokens a request has seen and made, and how that changes their logits.

use super::params::SamplingParams;

/// Counts of one request's tokens. Dense by token id, so that counting a token never allocates.
#[derive(Debug)]
pub(crate) struct Penalties {
    /// Distinct tokens of prompt and output, in the order they came.
    seen: Vec<u32>,
    is_seen: Vec<bool>,
    in_output: Vec<u32>,
}

impl Penalties {
    /// None where the request has no penalties.
    pub fn new(
        params: &SamplingParams,
        prompt: &[u32],
        max_tokens: usize,
        vocabulary: usize,
    ) -> Option<Penalties> {
        if !params.has_penalties() {
            return None;
        }
        let mut penalties = Penalties {
            seen: Vec::with_capacity(vocabulary.min(prompt.len() + max_tokens)),
            is_seen: vec![false; vocabulary],
            in_output: vec![0; vocabulary],
        };
        prompt.iter().for_each(|token| penalties.see(*token));
        Some(penalties)
    }

    /// A copy for a choice that goes its own way, with room for `max_tokens` more.
    pub fn fork(&self, max_tokens: usize) -> Penalties {
        let mut seen = Vec::with_capacity(self.is_seen.len().min(self.seen.len() + max_tokens));
        seen.extend_from_slice(&self.seen);
        Penalties {
            seen,
            is_seen: self.is_seen.clone(),
            in_output: self.in_output.clone(),
        }
    }

    /// Counts a token of the output.
    pub fn add(&mut self, token: u32) {
        self.see(token);
        self.in_output[token as usize] += 1;
    }

    fn see(&mut self, token: u32) {
        if !std::mem::replace(&mut self.is_seen[token as usize], true) {
            self.seen.push(token);
        }
    }

    pub fn apply(&self, params: &SamplingParams, logits: &mut [f32]) {
        for &token in &self.seen {
            let logit = &mut logits[token as usize];
            *logit = match *logit > 0.0 {
                true => *logit / params.repetition_penalty,
                false => *logit * params.repetition_penalty,
            };
            let count = self.in_output[token as usize];
            if count > 0 {
                *logit -= params.frequency_penalty * count as f32 + params.presence_penalty;
            }
        }
    }
}
