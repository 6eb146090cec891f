//! Owns the choice of experts: scores from a router's logits, the best of them, and the share of each.
//!
//! The arithmetic of a token: the largest logit; e to the power of each one's distance to it; their sum in f32, first to
//! last; each divided by it. Experts are chosen best first, of equal ones the lower number. Shares that are normalized are
//! divided by their sum, best first; a scale multiplies last.

use super::eights::{Eight, for_eights};
use super::exp::exp;
use crate::isa::{Isa, for_each_isa};
use crate::lanes::Lanes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Softmax {
    /// Over all experts, before the choice.
    OfAll,
    /// Over the chosen ones.
    OfChosen,
}

#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub softmax: Softmax,
    pub normalize: bool,
    pub scale: f32,
}

/// `e^(x - largest)`.
struct Below<L>(L);

impl<L: Lanes> Eight<L, 1> for Below<L> {
    #[inline(always)]
    fn apply(&self, [x]: [L; 1]) -> L {
        exp(x.sub(self.0))
    }
}

for_each_isa! {
    fn powers<L>(x: &[f32], largest: f32, out: &mut [f32]) {
        for_eights::<L, 1>([x], out, Below(L::splat(largest)));
    }
}

impl Route {
    /// Fills the row of a token: the numbers of its experts, as bits, and their shares, best first. `room` has a place for
    /// each logit.
    pub fn run(
        &self,
        isa: Isa,
        logits: &[f32],
        room: &mut [f32],
        experts: &mut [f32],
        shares: &mut [f32],
    ) {
        choose(logits, experts);
        let of = |values: &[f32], expert: &f32| values[expert.to_bits() as usize];
        // The first is the largest, or a NaN that should reach the shares.
        let largest = of(logits, &experts[0]);
        let mut sum = 0.0;
        match self.softmax {
            Softmax::OfAll => {
                powers(isa, logits, largest, room);
                let all: f32 = room.iter().fold(0.0, |sum, power| sum + power);
                for (share, expert) in shares.iter_mut().zip(&*experts) {
                    *share = of(room, expert) / all;
                    sum += *share;
                }
                if !self.normalize {
                    sum = 1.0;
                }
            }
            Softmax::OfChosen => {
                for (place, expert) in room.iter_mut().zip(&*experts) {
                    *place = of(logits, expert);
                }
                powers(isa, &room[..experts.len()], largest, shares);
                sum = shares.iter().fold(0.0, |sum, power| sum + power);
            }
        }
        for share in shares {
            *share = *share / sum * self.scale;
        }
    }
}

/// The largest values' places, best first; a NaN is chosen only when nothing better is left, or stands first.
fn choose(values: &[f32], chosen: &mut [f32]) {
    for rank in 0..chosen.len() {
        let (before, rest) = chosen.split_at_mut(rank);
        let mut best: Option<usize> = None;
        for (place, value) in values.iter().enumerate() {
            let is_better = best.is_none_or(|best| *value > values[best]);
            let is_taken = || before.iter().any(|b| b.to_bits() as usize == place);
            if is_better && !is_taken() {
                best = Some(place);
            }
        }
        let best = best.expect("no more are chosen than there are");
        rest[0] = f32::from_bits(best as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(isa: Isa, route: Route, logits: &[f32], top_k: usize) -> (Vec<u32>, Vec<f32>) {
        let mut room = vec![f32::NAN; logits.len()];
        let (mut experts, mut shares) = (vec![f32::NAN; top_k], vec![f32::NAN; top_k]);
        route.run(isa, logits, &mut room, &mut experts, &mut shares);
        (experts.iter().map(|e| e.to_bits()).collect(), shares)
    }

    const KINDS: [Route; 3] = [
        Route {
            softmax: Softmax::OfAll,
            normalize: false,
            scale: 1.0,
        },
        Route {
            softmax: Softmax::OfAll,
            normalize: true,
            scale: 2.5,
        },
        Route {
            softmax: Softmax::OfChosen,
            normalize: false,
            scale: 1.0,
        },
    ];

    #[test]
    fn shares_are_those_of_f64_and_of_every_instruction_set() {
        for experts in [1_usize, 3, 8, 60, 128] {
            let logits: Vec<f32> = (0..experts)
                .map(|i| (i * 7919 % 101) as f32 / 9.0 - 5.0)
                .collect();
            for top_k in [1, 2, 8].into_iter().filter(|k| *k <= experts) {
                for (kind, route) in KINDS.into_iter().enumerate() {
                    let (chosen, shares) = routed(Isa::Scalar, route, &logits, top_k);
                    let mut order: Vec<usize> = (0..experts).collect();
                    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
                    let power = |expert: &usize| (logits[*expert] as f64).exp();
                    let over = match kind {
                        0 => &order[..],
                        _ => &order[..top_k],
                    };
                    let sum: f64 = over.iter().map(power).sum();
                    for (rank, expert) in order[..top_k].iter().enumerate() {
                        assert_eq!(chosen[rank] as usize, *expert);
                        let truth = power(expert) / sum * route.scale as f64;
                        let error = (shares[rank] as f64 - truth).abs();
                        assert!(error < 1e-6, "{} of {experts}: {truth}", shares[rank]);
                    }
                    for isa in Isa::available() {
                        let found = routed(isa, route, &logits, top_k);
                        assert_eq!(found, (chosen.clone(), shares.clone()), "{isa}");
                    }
                }
            }
        }
    }

    #[test]
    fn equal_experts_are_taken_in_order() {
        let logits = [1.0, 3.0, 2.0, 3.0, 3.0, 2.0];
        for route in KINDS {
            let (chosen, shares) = routed(Isa::detect(), route, &logits, 5);
            assert_eq!(chosen, [1, 3, 4, 2, 5]);
            assert_eq!(shares[0], shares[2]);
        }
    }

    #[test]
    fn a_logit_that_is_not_finite_reaches_the_shares_and_experts_stay_different() {
        for route in KINDS {
            for bad in [f32::NAN, f32::INFINITY] {
                for place in 0..3 {
                    let mut logits = [0.5, 0.25, 0.125];
                    logits[place] = bad;
                    let (mut chosen, shares) = routed(Isa::detect(), route, &logits, 3);
                    assert!(shares.iter().any(|s| s.is_nan()), "{route:?} {logits:?}");
                    chosen.sort_unstable();
                    assert_eq!(chosen, [0, 1, 2]);
                }
            }
        }
    }
}
