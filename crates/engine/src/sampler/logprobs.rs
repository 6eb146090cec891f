//! Owns log-probabilities read from a row of logits: of one token, its rank, and of the most likely ones.

use super::exp::exp_of_negative;
use crate::event::TokenLogprobs;

/// The log-softmax of `logits` at `id` and at the `top` largest. `largest` is the largest logit, above -inf; none is NaN.
pub(crate) fn token_logprobs(logits: &[f32], largest: f32, id: u32, top: usize) -> TokenLogprobs {
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
    TokenLogprobs {
        id,
        logprob: logprob(chosen),
        rank,
        top: most_likely(logits, top)
            .into_iter()
            .map(|(id, logit)| (id, logprob(logit)))
            .collect(),
    }
}

/// The `count` largest logits, largest first, ties to the lower id. `count` is small: a sorted list is kept.
fn most_likely(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut top: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    if count == 0 {
        return top;
    }
    for (id, &logit) in logits.iter().enumerate() {
        if top.len() == count && logit <= top[count - 1].1 {
            continue;
        }
        let place = top.partition_point(|t| t.1 >= logit);
        top.insert(place, (id as u32, logit));
        top.truncate(count);
    }
    top
}
