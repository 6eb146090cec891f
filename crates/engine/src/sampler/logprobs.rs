//! Owns log-probabilities read from a row of logits: of one token, its rank, and of the most likely ones.

use super::exp::exp_of_negative;
use crate::event::TokenLogprobs;
use crate::request::MAX_LOGPROBS;

/// How likely a token was, with the alternatives in the finder's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores<'a> {
    pub logprob: f32,
    /// 1 for the most likely token; tokens as likely count only where their id is lower.
    pub rank: u32,
    /// The most likely tokens, most likely first, ties to the lower id.
    pub top: &'a [(u32, f32)],
}

impl Scores<'_> {
    pub fn of(self, id: u32) -> TokenLogprobs {
        TokenLogprobs {
            id,
            logprob: self.logprob,
            rank: self.rank,
            top: self.top.to_vec(),
        }
    }
}

/// Finds log-probabilities; its memory is made once.
#[derive(Debug)]
pub(crate) struct Scorer {
    top: Vec<(u32, f32)>,
}

impl Scorer {
    pub fn new() -> Scorer {
        Scorer {
            // One more than is kept: the last is pushed out.
            top: Vec::with_capacity(MAX_LOGPROBS + 1),
        }
    }

    /// The log-softmax of `logits` at `id` and at the `top` largest. `largest` is the largest logit, above -inf; none is
    /// NaN.
    pub fn score(&mut self, logits: &[f32], largest: f32, id: u32, top: usize) -> Scores<'_> {
        // With +inf among the logits those tokens share all of the probability.
        let relative = |logit: f32| match logit == largest {
            true => 0.0,
            false => logit - largest,
        };
        let sum: f64 = logits
            .iter()
            .map(|l| f64::from(exp_of_negative(relative(*l))))
            .sum();
        let logprob = |logit: f32| (f64::from(relative(logit)) - sum.ln()) as f32;
        let chosen = logits[id as usize];
        let before = |(other, logit): (usize, &f32)| {
            *logit > chosen || (*logit == chosen && other < id as usize)
        };
        let rank = logits.iter().enumerate().filter(|l| before(*l)).count() as u32 + 1;
        self.find_most_likely(logits, top);
        for (_, value) in &mut self.top {
            *value = logprob(*value);
        }
        Scores {
            logprob: logprob(chosen),
            rank,
            top: &self.top,
        }
    }

    /// The `count` largest logits, largest first, ties to the lower id. `count` is small: a sorted list is kept.
    fn find_most_likely(&mut self, logits: &[f32], count: usize) {
        let top = &mut self.top;
        top.clear();
        if count == 0 {
            return;
        }
        for (id, &logit) in logits.iter().enumerate() {
            if top.len() == count && logit <= top[count - 1].1 {
                continue;
            }
            let place = top.partition_point(|t| t.1 >= logit);
            top.insert(place, (id as u32, logit));
            top.truncate(count);
        }
    }
}
