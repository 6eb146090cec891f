//! Owns the choice of the next token from a row of logits, on the host.
//!
//! Order: tokens that `min_tokens`, `bad_words`, `allowed_token_ids` or a constraint forbid become impossible,
//! `logit_bias` is added, penalties are applied (repetition, then frequency and presence), then temperature, min-p,
//! top-k, top-p, typical and the draw. Log-probabilities are those of the logits as the model gave them, before all of
//! that, as OpenAI and vLLM have them. A draw depends on logits, parameters, seed and position alone.

mod exp;
mod filter;
mod logprobs;
mod params;
mod penalties;
pub mod philox;
#[cfg(test)]
mod tests;

use logprobs::Scorer;
pub(crate) use logprobs::Scores;
pub use params::{MAX_LISTED, SamplingParams};
pub(crate) use params::{check_count, check_ids};
pub(crate) use penalties::Penalties;

use crate::error::EngineError;
use crate::token_mask::TokenMask;
use filter::Filter;

/// What one draw needs besides the logits.
#[derive(Debug)]
pub(crate) struct Draw<'a> {
    pub params: &'a SamplingParams,
    pub seed: u64,
    /// Of the token to be drawn, counted from the start of the prompt.
    pub position: u64,
    pub penalties: Option<&'a Penalties>,
    /// Token lists that are impossible here.
    pub banned: [&'a [u32]; 2],
    /// Whatever one of these does not allow is impossible.
    pub masks: [Option<&'a TokenMask>; 2],
    /// What was made so far, for `bad_words`.
    pub output: &'a [u32],
    pub logprobs: Option<usize>,
}

/// Scratch memory for draws; no state passes from one draw to the next.
#[derive(Debug)]
pub(crate) struct Sampler {
    work: Vec<f32>,
    filter: Filter,
    scorer: Scorer,
}

impl Sampler {
    pub fn new(vocabulary: usize) -> Sampler {
        Sampler {
            work: Vec::with_capacity(vocabulary),
            filter: Filter::with_vocabulary(vocabulary),
            scorer: Scorer::new(),
        }
    }

    pub fn sample(
        &mut self,
        logits: &[f32],
        draw: &Draw,
    ) -> Result<(u32, Option<Scores<'_>>), EngineError> {
        let (params, position) = (draw.params, draw.position);
        let raw = largest(logits, position)?;
        let adjusted = draw.penalties.is_some()
            || !params.logit_bias.is_empty()
            || !params.bad_words.is_empty()
            || draw.masks.iter().any(Option::is_some)
            || draw.banned.iter().any(|ids| !ids.is_empty());
        let (values, best) = match adjusted {
            false => (logits, raw),
            true => {
                self.adjust(logits, draw);
                (self.work.as_slice(), largest(&self.work, position)?)
            }
        };
        let token = match params.temperature == 0.0 {
            true => best.id,
            false => {
                let uniform = philox::uniform(draw.seed, position);
                self.filter.draw(params, values, best.logit, uniform)
            }
        };
        let logprobs = draw
            .logprobs
            .map(|top| self.scorer.score(logits, raw.logit, token, top));
        Ok((token, logprobs))
    }

    /// How likely `id` was as the token at `position`.
    pub fn score(
        &mut self,
        logits: &[f32],
        id: u32,
        top: usize,
        position: u64,
    ) -> Result<Scores<'_>, EngineError> {
        let best = largest(logits, position)?;
        Ok(self.scorer.score(logits, best.logit, id, top))
    }

    fn adjust(&mut self, logits: &[f32], draw: &Draw) {
        self.work.clear();
        self.work.extend_from_slice(logits);
        for &id in draw.banned.into_iter().flatten() {
            // A model may name an end token that its logits do not have.
            if let Some(logit) = self.work.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        for word in &draw.params.bad_words {
            let (last, before) = word.split_last().expect("an empty one was refused");
            if draw.output.ends_with(before) {
                self.work[*last as usize] = f32::NEG_INFINITY;
            }
        }
        for mask in draw.masks.into_iter().flatten() {
            mask.apply(&mut self.work);
        }
        for &(id, bias) in &draw.params.logit_bias {
            self.work[id as usize] += bias;
        }
        if let Some(penalties) = draw.penalties {
            penalties.apply(draw.params, &mut self.work);
        }
    }
}

/// Checks the largest logit of a row that the device reduced to it, as `sample` would.
pub(crate) fn check_largest(id: u32, logit: f32, position: u64) -> Result<u32, EngineError> {
    if logit.is_nan() {
        return Err(EngineError::NotANumber { id, position });
    }
    match logit == f32::NEG_INFINITY {
        true => Err(EngineError::NothingPossible { position }),
        false => Ok(id),
    }
}

const LANES: usize = 16;

#[derive(Clone, Copy)]
struct Largest {
    id: u32,
    logit: f32,
}

/// The largest logit, ties to the lower id. An error where one is NaN or none is above -inf.
fn largest(logits: &[f32], position: u64) -> Result<Largest, EngineError> {
    // One running maximum would be a chain of dependent comparisons; independent lanes become vector instructions.
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut nans = [false; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane];
            lanes[lane] = if value > lanes[lane] {
                value
            } else {
                lanes[lane]
            };
            nans[lane] |= value.is_nan();
        }
    }
    let logit = lanes
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    let has_nan = nans.contains(&true) || rest.iter().any(|l| l.is_nan());
    let at = |predicate: &dyn Fn(f32) -> bool| {
        let id = logits.iter().position(|l| predicate(*l));
        id.map(|id| id as u32)
    };
    if has_nan {
        let id = at(&f32::is_nan).expect("one was seen");
        return Err(EngineError::NotANumber { id, position });
    }
    if logit == f32::NEG_INFINITY {
        return Err(EngineError::NothingPossible { position });
    }
    let id = at(&|l| l == logit).expect("it was seen");
    Ok(Largest { id, logit })
}
