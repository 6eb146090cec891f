//! Owns the checks of sampling: each filter against a reference written another way, distributions, extreme values.

use super::*;
use proptest::prelude::*;

fn draw(params: &SamplingParams, position: u64) -> Draw<'_> {
    Draw {
        params,
        seed: params.seed.unwrap_or(1),
        position,
        penalties: None,
        banned: [&[], &[]],
        masks: [None, None],
        output: &[],
        logprobs: None,
    }
}

fn sample(logits: &[f32], params: &SamplingParams, position: u64) -> u32 {
    let mut sampler = Sampler::new(logits.len());
    sampler.sample(logits, &draw(params, position)).unwrap().0
}

fn hot() -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        ..SamplingParams::default()
    }
}

/// The distribution after all filters, the slow way: full sort, everything in f64. Also by how little a filter decided
/// at the closest: below 1e-5 rounding may decide otherwise.
fn reference_with_margin(logits: &[f32], params: &SamplingParams) -> (Vec<f64>, f64) {
    let scaled: Vec<f64> = logits
        .iter()
        .map(|l| f64::from(*l) / f64::from(params.temperature))
        .collect();
    let softmax = |kept: &[bool]| {
        let weights: Vec<f64> = scaled
            .iter()
            .zip(kept)
            .map(|(l, kept)| if *kept { l.exp() } else { 0.0 })
            .collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|w| w / sum).collect::<Vec<f64>>()
    };
    let mut kept = vec![true; logits.len()];
    let probabilities = softmax(&kept);
    let best = probabilities.iter().cloned().fold(0.0, f64::max);
    let mut margin = 1.0f64;
    for (kept, p) in kept.iter_mut().zip(&probabilities) {
        let above_floor = p / best - f64::from(params.min_p);
        *kept = above_floor >= 0.0;
        margin = margin.min(above_floor.abs());
    }
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| scaled[*b].total_cmp(&scaled[*a]).then(a.cmp(b)));
    order.retain(|i| kept[*i]);
    if params.top_k > 0 {
        order
            .iter()
            .skip(params.top_k)
            .for_each(|i| kept[*i] = false);
    }
    let probabilities = softmax(&kept);
    let mut above = 0.0;
    for i in order {
        if above >= f64::from(params.top_p) {
            kept[i] = false;
        }
        above += probabilities[i];
        if params.top_p < 1.0 {
            margin = margin.min((above - f64::from(params.top_p)).abs());
        }
    }
    if params.typical_p < 1.0 {
        margin = margin.min(keep_typical(&softmax(&kept), &mut kept, params.typical_p));
    }
    (softmax(&kept), margin)
}

/// By the definition: sorted by the distance of -ln p from the entropy. Gives by how little was decided: between sums and
/// the share, and between the distances of neighbours of different weight.
fn keep_typical(probabilities: &[f64], kept: &mut [bool], typical_p: f32) -> f64 {
    let surprise = |i: usize| -probabilities[i].ln();
    let mut order: Vec<usize> = (0..kept.len()).filter(|i| kept[*i]).collect();
    let entropy: f64 = order.iter().map(|i| probabilities[*i] * surprise(*i)).sum();
    let distance = |i: usize| (surprise(i) - entropy).abs();
    order.sort_by(|a, b| {
        let by_distance = distance(*a).total_cmp(&distance(*b));
        // Equal probabilities have equal distances, whatever rounding says.
        match probabilities[*a] == probabilities[*b] {
            true => a.cmp(b),
            false => by_distance,
        }
    });
    let mut margin = 1.0f64;
    for pair in order.windows(2) {
        if probabilities[pair[0]] != probabilities[pair[1]] {
            margin = margin.min(distance(pair[1]) - distance(pair[0]));
        }
    }
    let mut above = 0.0;
    for i in order {
        kept[i] = above < f64::from(typical_p);
        above += probabilities[i];
        margin = margin.min((above - f64::from(typical_p)).abs());
    }
    margin
}

fn reference(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    reference_with_margin(logits, params).0
}

/// The chi-square statistic of many draws against the reference, and its degrees of freedom. A token that the reference
/// forbids must never be drawn.
fn chi_square(logits: &[f32], params: &SamplingParams, draws: u64) -> (f64, f64) {
    let expected = reference(logits, params);
    let mut counts = vec![0u64; logits.len()];
    let mut sampler = Sampler::new(logits.len());
    for position in 0..draws {
        let (id, _) = sampler.sample(logits, &draw(params, position)).unwrap();
        counts[id as usize] += 1;
    }
    let (mut statistic, mut cells) = (0.0, 0.0);
    for (id, (count, p)) in counts.iter().zip(&expected).enumerate() {
        if *p == 0.0 {
            assert_eq!(*count, 0, "token {id} was drawn and is filtered out");
            continue;
        }
        let mean = p * draws as f64;
        statistic += (*count as f64 - mean).powi(2) / mean;
        cells += 1.0;
    }
    (statistic, cells - 1.0)
}

#[test]
fn draws_follow_the_distribution() {
    let logits: Vec<f32> = (0..12).map(|i| (i * 7 % 12) as f32 * 0.3).collect();
    let cases = [
        hot(),
        SamplingParams {
            temperature: 0.5,
            ..hot()
        },
        SamplingParams {
            temperature: 2.0,
            ..hot()
        },
        SamplingParams { top_k: 5, ..hot() },
        SamplingParams {
            top_p: 0.7,
            ..hot()
        },
        SamplingParams {
            min_p: 0.3,
            ..hot()
        },
        SamplingParams {
            typical_p: 0.6,
            ..hot()
        },
        SamplingParams {
            top_k: 8,
            top_p: 0.8,
            min_p: 0.1,
            typical_p: 0.9,
            temperature: 1.3,
            ..hot()
        },
    ];
    for params in cases {
        for seed in [1, 2, 3] {
            let params = SamplingParams {
                seed: Some(seed),
                ..params.clone()
            };
            let (statistic, freedom) = chi_square(&logits, &params, 20_000);
            // Mean plus four standard deviations of the chi-square distribution.
            let limit = freedom + 4.0 * (2.0 * freedom).sqrt();
            assert!(statistic < limit, "{statistic} >= {limit} for {params:?}");
        }
    }
}

#[test]
fn a_wrong_distribution_would_be_noticed() {
    let logits: Vec<f32> = (0..12).map(|i| i as f32 * 0.3).collect();
    let warmer = SamplingParams {
        temperature: 1.05,
        ..hot()
    };
    let expected = reference(&logits, &hot());
    let mut counts = [0.0; 12];
    for position in 0..20_000 {
        counts[sample(&logits, &warmer, position) as usize] += 1.0;
    }
    let statistic: f64 = counts
        .iter()
        .zip(expected)
        .map(|(count, p): (&f64, f64)| (count - p * 20_000.0).powi(2) / (p * 20_000.0))
        .sum();
    assert!(statistic > 11.0 + 4.0 * 22f64.sqrt(), "{statistic}");
}

proptest! {
    /// Which tokens survive, found by drawing at both edges of each token's interval of the unit line.
    #[test]
    fn filters_agree_with_the_reference(
        logits in proptest::collection::vec((-40..40i32).prop_map(|l| l as f32 / 8.0), 1..200),
        top_k in 0..40usize,
        top_p in prop_oneof![Just(1.0f32), 0.05..0.99f32],
        min_p in prop_oneof![Just(0.0f32), 0.01..0.9f32],
        typical_p in prop_oneof![2 => Just(1.0f32), 1 => 0.05..0.99f32],
        temperature in 0.2..2.0f32,
    ) {
        let params = SamplingParams { top_k, top_p, min_p, typical_p, temperature, ..hot() };
        let (expected, margin) = reference_with_margin(&logits, &params);
        prop_assume!(margin > 1e-5 || min_p == 0.0 && top_p == 1.0 && typical_p == 1.0);
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let mut filter = Filter::default();
        let mut below = 0.0;
        for (id, p) in expected.iter().enumerate() {
            // The reference rounds elsewhere: stay clear of the edges, and of tokens too unlikely to have an inside.
            if *p > 1e-3 {
                for uniform in [below + p * 0.01, below + p * 0.99] {
                    prop_assert_eq!(filter.draw(&params, &logits, largest, uniform), id as u32);
                }
            }
            below += p;
        }
    }

    #[test]
    fn logprobs_agree_with_the_reference(
        logits in proptest::collection::vec((-40..40i32).prop_map(|l| l as f32 / 4.0), 1..100),
        id in any::<usize>(),
        top in 0..20usize,
    ) {
        let id = id % logits.len();
        let mut sampler = Sampler::new(logits.len());
        let found = sampler.score(&logits, id as u32, top, 0).unwrap();
        let expected: Vec<f64> = reference(&logits, &hot()).iter().map(|p| p.ln()).collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        prop_assert!((f64::from(found.logprob) - expected[id]).abs() < 1e-5);
        prop_assert_eq!(order[found.rank as usize - 1], id);
        prop_assert_eq!(found.top.len(), top.min(logits.len()));
        for (place, (id, logprob)) in found.top.iter().enumerate() {
            prop_assert_eq!(*id as usize, order[place]);
            prop_assert!((f64::from(*logprob) - expected[*id as usize]).abs() < 1e-5);
        }
    }
}

#[test]
fn greedy_takes_the_largest_and_the_lower_id_of_equals() {
    let greedy = SamplingParams::default();
    assert_eq!(sample(&[1.0, 3.0, 3.0, 2.0], &greedy, 0), 1);
    assert_eq!(sample(&[-5.0], &greedy, 0), 0);
    assert_eq!(sample(&[f32::NEG_INFINITY, -1e30], &greedy, 0), 1);
}

#[test]
fn top_k_of_equals_keeps_the_lower_ids() {
    let params = SamplingParams { top_k: 2, ..hot() };
    let drawn: Vec<u32> = (0..200).map(|p| sample(&[1.0; 8], &params, p)).collect();
    assert!(drawn.iter().all(|id| *id < 2));
    assert!(drawn.contains(&0) && drawn.contains(&1));
}

#[test]
fn a_nucleus_larger_than_the_first_look_is_complete() {
    // 1000 equal tokens: the fewest that reach 90 % are the first 900.
    let params = SamplingParams {
        top_p: 0.9,
        ..hot()
    };
    let drawn: Vec<u32> = (0..20_000)
        .map(|p| sample(&[0.0; 1000], &params, p))
        .collect();
    assert_eq!(drawn.iter().max(), Some(&899));
}

#[test]
fn extreme_logits_do_not_break_a_draw() {
    let inf = f32::INFINITY;
    let cold = SamplingParams {
        temperature: 1e-6,
        ..hot()
    };
    let filtered = SamplingParams {
        top_k: 3,
        top_p: 0.5,
        min_p: 0.2,
        ..hot()
    };
    for params in [&hot(), &cold, &filtered, &SamplingParams::default()] {
        for position in 0..50 {
            assert_eq!(sample(&[-inf, -inf, 0.0, -inf], params, position), 2);
            assert_eq!(sample(&[0.0, 5.0, inf, 1.0], params, position), 2);
            assert_eq!(sample(&[f32::MIN, f32::MAX, 0.0], params, position), 1);
        }
    }
    for position in 0..50 {
        assert_eq!(sample(&[1.0, 1.001, 0.5], &cold, position), 1);
    }
    let equals: Vec<u32> = (0..50)
        .map(|p| sample(&[inf, 0.0, inf], &hot(), p))
        .collect();
    assert!(equals.contains(&0) && equals.contains(&2) && !equals.contains(&1));
}

#[test]
fn logits_that_allow_no_token_are_an_error() {
    let mut sampler = Sampler::new(3);
    for params in [hot(), SamplingParams::default()] {
        let error = sampler.sample(&[0.0, f32::NAN, 1.0], &draw(&params, 9));
        assert_eq!(
            error.unwrap_err(),
            EngineError::NotANumber { id: 1, position: 9 }
        );
        let error = sampler.sample(&[f32::NEG_INFINITY; 3], &draw(&params, 9));
        assert_eq!(
            error.unwrap_err(),
            EngineError::NothingPossible { position: 9 }
        );
        let banned = Draw {
            banned: [&[0, 1], &[2, 4_000_000]],
            ..draw(&params, 9)
        };
        let error = sampler.sample(&[0.0; 3], &banned);
        assert_eq!(
            error.unwrap_err(),
            EngineError::NothingPossible { position: 9 }
        );
    }
}

#[test]
fn a_draw_depends_on_seed_and_position_alone() {
    let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 * 0.1).collect();
    let seeded = |seed| SamplingParams {
        seed: Some(seed),
        ..hot()
    };
    let forward: Vec<u32> = (0..40).map(|p| sample(&logits, &seeded(5), p)).collect();
    let mut backward: Vec<u32> = (0..40)
        .rev()
        .map(|p| sample(&logits, &seeded(5), p))
        .collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let other: Vec<u32> = (0..40).map(|p| sample(&logits, &seeded(6), p)).collect();
    assert_ne!(forward, other);
}

#[test]
fn penalties_and_bias_change_the_logits_by_their_definitions() {
    let params = SamplingParams {
        repetition_penalty: 2.0,
        frequency_penalty: 0.25,
        presence_penalty: 0.5,
        logit_bias: vec![(4, 1.5)],
        ..SamplingParams::default()
    };
    let mut penalties = Penalties::new(&params, &[0, 1, 1], 8, 6).unwrap();
    for token in [1, 2, 2, 2] {
        penalties.add(token);
    }
    let mut sampler = Sampler::new(6);
    let all = Draw {
        penalties: Some(&penalties),
        banned: [&[5], &[]],
        ..draw(&params, 0)
    };
    sampler.adjust(&[4.0, 4.0, -1.0, 4.0, 4.0, 4.0], &all);
    // 0: prompt only. 1: prompt and once made. 2: made three times, negative. 3: new. 4: biased. 5: banned.
    let expected = [2.0, 2.0 - 0.75, -2.0 - 1.25, 4.0, 5.5, f32::NEG_INFINITY];
    assert_eq!(sampler.work, expected);
    assert!(Penalties::new(&SamplingParams::default(), &[0], 8, 6).is_none());
}

#[test]
fn a_bad_word_is_impossible_only_after_its_beginning() {
    let params = SamplingParams {
        bad_words: vec![vec![0], vec![1, 2], vec![3, 3, 4]],
        ..SamplingParams::default()
    };
    let banned_after = |output: &[u32]| {
        let mut sampler = Sampler::new(6);
        let after = Draw {
            output,
            ..draw(&params, 0)
        };
        sampler.adjust(&[0.0; 6], &after);
        let ids = 0..6u32;
        ids.filter(|id| sampler.work[*id as usize] == f32::NEG_INFINITY)
            .collect::<Vec<u32>>()
    };
    assert_eq!(banned_after(&[]), [0]);
    assert_eq!(banned_after(&[1]), [0, 2]);
    assert_eq!(banned_after(&[1, 1]), [0, 2]);
    assert_eq!(banned_after(&[3]), [0]);
    assert_eq!(banned_after(&[3, 3]), [0, 4]);
    assert_eq!(banned_after(&[3, 5, 3]), [0]);
}

#[test]
fn masks_and_allowed_tokens_leave_no_other() {
    let params = SamplingParams {
        allowed_token_ids: Some(vec![1, 3, 4]),
        logit_bias: vec![(0, 100.0)],
        ..SamplingParams::default()
    };
    let allowed = params.allowed(6).unwrap();
    let mut mask = TokenMask::new(6);
    [0, 3, 4, 5].iter().for_each(|id| mask.allow(*id));
    let with = |masks| Draw {
        masks,
        ..draw(&params, 0)
    };
    let logits = [0.0, 5.0, 4.0, 1.0, 3.0, 9.0];
    let mut sampler = Sampler::new(6);
    let mut token = |masks| sampler.sample(&logits, &with(masks)).unwrap().0;
    assert_eq!(token([None, None]), 0);
    assert_eq!(token([Some(&allowed), None]), 1);
    assert_eq!(token([None, Some(&mask)]), 0);
    assert_eq!(token([Some(&allowed), Some(&mask)]), 4);
    let nothing = TokenMask::new(6);
    let mut sampler = Sampler::new(6);
    let error = sampler.sample(&logits, &with([Some(&allowed), Some(&nothing)]));
    assert_eq!(
        error.unwrap_err(),
        EngineError::NothingPossible { position: 0 }
    );
}

#[test]
fn the_devices_largest_logit_is_checked_like_the_hosts() {
    assert_eq!(check_largest(3, -5.0, 9), Ok(3));
    assert_eq!(
        check_largest(3, f32::NAN, 9),
        Err(EngineError::NotANumber { id: 3, position: 9 })
    );
    assert_eq!(
        check_largest(3, f32::NEG_INFINITY, 9),
        Err(EngineError::NothingPossible { position: 9 })
    );
}

#[test]
fn logprobs_are_those_of_the_untouched_logits() {
    let params = SamplingParams {
        logit_bias: vec![(0, 100.0)],
        ..SamplingParams::default()
    };
    let mut sampler = Sampler::new(3);
    let asked = Draw {
        logprobs: Some(2),
        ..draw(&params, 0)
    };
    let (id, logprobs) = sampler
        .sample(&[0.0, 1.0, f32::NEG_INFINITY], &asked)
        .unwrap();
    let logprobs = logprobs.unwrap();
    let sum = (1f32 + 1f32.exp()).ln();
    assert_eq!((id, logprobs.rank), (0, 2));
    assert!((logprobs.logprob + sum).abs() < 1e-6);
    assert_eq!(logprobs.top[0].0, 1);
    let of_impossible = sampler.score(&[0.0, f32::NEG_INFINITY], 1, 0, 0).unwrap();
    assert_eq!(of_impossible.logprob, f32::NEG_INFINITY);
}
