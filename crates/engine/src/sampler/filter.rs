//! Owns the choice of tokens that may be drawn (min-p, top-k, top-p, typical) and the draw among them.

use super::exp::exp_of_negative;
use super::params::SamplingParams;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    /// What candidates are ordered by, 0 and below: the log of the weight relative to the most likely token, or how far
    /// from typical a token is.
    score: f32,
}

impl Candidate {
    /// Highest score first, ties to the lower id.
    fn order(&self, other: &Candidate) -> std::cmp::Ordering {
        let by_score = other.score.total_cmp(&self.score);
        by_score.then(self.id.cmp(&other.id))
    }
}

/// Draws from logits; holds scratch memory only.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    log_weights: Vec<f32>,
    weights: Vec<f32>,
    candidates: Vec<Candidate>,
    /// Survivors in the order of their ids, with the sum of the weights up to each.
    survivors: Vec<(u32, f64)>,
}

/// Top-p looks at this many of the most likely tokens first, then at eight times as many more, and so on: most distributions
/// need only the first few, and none is sorted further than needed.
const FIRST_LOOK: usize = 64;

impl Filter {
    pub fn with_vocabulary(vocabulary: usize) -> Filter {
        Filter {
            log_weights: Vec::with_capacity(vocabulary),
            weights: Vec::with_capacity(vocabulary),
            candidates: Vec::with_capacity(vocabulary),
            survivors: Vec::with_capacity(vocabulary),
        }
    }

    /// The token that `uniform` in [0, 1) falls on. `largest` is the largest of the logits and above -inf, no logit is
    /// NaN and the temperature is above 0.
    pub fn draw(
        &mut self,
        params: &SamplingParams,
        logits: &[f32],
        largest: f32,
        uniform: f64,
    ) -> u32 {
        let temperature = params.temperature;
        self.log_weights.clear();
        self.log_weights.extend(logits.iter().map(|l| {
            // Not a plain difference: +inf - +inf is no number.
            match *l == largest {
                true => 0.0,
                false => (l - largest) / temperature,
            }
        }));
        self.weights.resize(logits.len(), 0.0);
        for (weight, log_weight) in self.weights.iter_mut().zip(&self.log_weights) {
            *weight = exp_of_negative(*log_weight);
        }
        let last = self.last_survivor(params);
        self.survivors.clear();
        let mut sum = 0.0;
        for (id, &score) in self.log_weights.iter().enumerate() {
            let id = id as u32;
            if (Candidate { id, score }).order(&last).is_gt() {
                continue;
            }
            let weight = self.weights[id as usize];
            if weight > 0.0 {
                sum += f64::from(weight);
                self.survivors.push((id, sum));
            }
        }
        if params.typical_p < 1.0 {
            sum = self.keep_typical(params.typical_p, sum);
        }
        let target = uniform * sum;
        let place = self.survivors.partition_point(|s| s.1 <= target);
        // Rounding may carry the target to the very end.
        self.survivors[place.min(self.survivors.len() - 1)].0
    }

    /// Keeps the survivors whose surprise is closest to the expected one, and gives the sum of their weights. With
    /// probabilities p = weight / sum, surprise less entropy is the mean of the log weights less the token's own: no
    /// logarithm is needed.
    fn keep_typical(&mut self, typical_p: f32, sum: f64) -> f64 {
        let mut mean = 0.0;
        for (id, _) in &self.survivors {
            let id = *id as usize;
            mean += f64::from(self.weights[id]) * f64::from(self.log_weights[id]);
        }
        let mean = mean / sum;
        let (log_weights, weights) = (&self.log_weights, &self.weights);
        let candidate = |id: u32| {
            let surprise = mean - f64::from(log_weights[id as usize]);
            let score = -surprise.abs() as f32;
            Candidate { id, score }
        };
        self.candidates.clear();
        self.candidates
            .extend(self.survivors.iter().map(|(id, _)| candidate(*id)));
        let last = nucleus_end(&mut self.candidates, weights, typical_p);
        let mut kept = 0.0;
        self.survivors.retain_mut(|(id, sum)| {
            let stays = candidate(*id).order(&last).is_le();
            if stays {
                kept += f64::from(weights[*id as usize]);
                *sum = kept;
            }
            stays
        });
        kept
    }

    /// The least likely token that may still be drawn: whatever comes before it in order may be too.
    fn last_survivor(&mut self, params: &SamplingParams) -> Candidate {
        // ln(0) is -inf, which keeps all.
        let floor = params.min_p.ln();
        let top_k = match params.top_k {
            0 => self.log_weights.len(),
            k => k,
        };
        let everything_above_floor = Candidate {
            id: u32::MAX,
            score: floor,
        };
        if top_k >= self.log_weights.len() && params.top_p >= 1.0 {
            return everything_above_floor;
        }
        self.candidates.clear();
        for (id, &score) in self.log_weights.iter().enumerate() {
            if score >= floor && score > f32::NEG_INFINITY {
                let id = id as u32;
                self.candidates.push(Candidate { id, score });
            }
        }
        if top_k < self.candidates.len() {
            self.candidates
                .select_nth_unstable_by(top_k - 1, Candidate::order);
            self.candidates.truncate(top_k);
        }
        match params.top_p < 1.0 {
            true => nucleus_end(&mut self.candidates, &self.weights, params.top_p),
            false => *self
                .candidates
                .iter()
                .max_by(|a, b| a.order(b))
                .expect("the most likely token is never filtered out"),
        }
    }
}

/// The last of the fewest first candidates, in order, that together reach this share of all their weights.
fn nucleus_end(candidates: &mut [Candidate], weights: &[f32], share: f32) -> Candidate {
    let weight = |c: &Candidate| f64::from(weights[c.id as usize]);
    let wanted = f64::from(share) * candidates.iter().map(weight).sum::<f64>();
    let (mut done, mut look, mut sum) = (0, FIRST_LOOK, 0.0);
    while done < candidates.len() {
        let rest = &mut candidates[done..];
        let taken = look.min(rest.len());
        if taken < rest.len() {
            rest.select_nth_unstable_by(taken - 1, Candidate::order);
        }
        rest[..taken].sort_unstable_by(Candidate::order);
        for candidate in &rest[..taken] {
            sum += weight(candidate);
            if sum >= wanted {
                return *candidate;
            }
        }
        done += taken;
        look *= 8;
    }
    // The sums were added in another order: rounding may leave the last one short.
    *candidates
        .last()
        .expect("the most likely token is never filtered out")
}
