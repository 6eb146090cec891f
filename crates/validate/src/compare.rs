//! Owns the comparison of two backends on one text: every tap of every layer, then the log-probabilities.

use crate::difference::{Difference, log_softmax};
use crate::runner::{Runner, RunnerOptions, ValidateError};
use mettle_models::Model;
use mettle_plan::{Backend, passes};

/// How far one tap is apart, in relation to the values there.
#[derive(Clone, Debug, PartialEq)]
pub struct TapDifference {
    pub name: String,
    /// Root of the mean square of the differences, over that of the reference's values.
    pub relative: f64,
    pub max: f64,
}

#[derive(Clone, Debug)]
pub struct Comparison {
    /// In the plan's order.
    pub taps: Vec<TapDifference>,
    /// Of the log-probabilities of all tokens at all places.
    pub log_probabilities: Difference,
    /// Places at which both find the same token most likely.
    pub same_top: usize,
    pub places: usize,
}

/// Runs `tokens` through both, in one piece.
pub fn compare(
    model: &Model,
    reference: &dyn Backend,
    tested: &dyn Backend,
    tokens: &[u32],
    disabled_passes: &[String],
) -> Result<Comparison, ValidateError> {
    let mut plan = model.plans().swap_remove(0);
    passes::apply(&mut plan, disabled_passes)?;
    let taps: Vec<String> = plan
        .nodes
        .iter()
        .flat_map(|node| &node.taps)
        .map(|tap| tap.name.clone())
        .collect();
    let options = || RunnerOptions {
        tokens: tokens.len(),
        disabled_passes: disabled_passes.to_vec(),
        taps: taps.clone(),
    };
    let (expected_logits, expected) = run(model, reference, options(), tokens)?;
    let (found_logits, found) = run(model, tested, options(), tokens)?;
    let taps = taps.into_iter().zip(expected.iter().zip(&found));
    let taps = taps
        .map(|(name, (expected, found))| relative(name, expected, found))
        .collect();
    let rows = |logits: &[f32]| -> Vec<Vec<f32>> {
        let width = logits.len() / tokens.len();
        logits.chunks_exact(width).map(log_softmax).collect()
    };
    let (expected, found) = (rows(&expected_logits), rows(&found_logits));
    let same_top = expected
        .iter()
        .zip(&found)
        .filter(|(a, b)| top(a) == top(b))
        .count();
    Ok(Comparison {
        taps,
        log_probabilities: Difference::between(&found.concat(), &expected.concat()),
        same_top,
        places: tokens.len(),
    })
}

type Logits = Vec<f32>;
type Taps = Vec<Vec<f32>>;

fn run(
    model: &Model,
    backend: &dyn Backend,
    options: RunnerOptions,
    tokens: &[u32],
) -> Result<(Logits, Taps), ValidateError> {
    let names = options.taps.clone();
    let mut runner = Runner::new(model, backend, options)?;
    let logits = runner.logits(tokens, tokens.len())?;
    let tap = |name: &String| {
        let values = runner.executable().tap(name);
        values.expect("asked for when it was prepared").to_vec()
    };
    let taps = names.iter().map(tap).collect();
    Ok((logits, taps))
}

fn relative(name: String, expected: &[f32], found: &[f32]) -> TapDifference {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let size = square(&mut expected.iter().map(|v| f64::from(*v)));
    let differences = expected.iter().zip(found);
    let apart = square(&mut differences.map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let relative = match (apart, size) {
        _ if expected.len() != found.len() || apart.is_nan() => f64::INFINITY,
        (0.0, _) => 0.0,
        (apart, size) => (apart / size).sqrt(),
    };
    let max = match expected.len() == found.len() {
        true => Difference::between(found, expected).max,
        false => f64::INFINITY,
    };
    TapDifference {
        name,
        relative,
        max,
    }
}

fn top(row: &[f32]) -> Option<usize> {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_of_nan_or_of_another_length_is_infinitely_far() {
        let far = |found: &[f32]| relative("t".into(), &[1.0, 2.0], found).relative;
        assert_eq!(far(&[1.0, 2.0]), 0.0);
        assert_eq!(far(&[1.0, f32::NAN]), f64::INFINITY);
        assert_eq!(far(&[1.0]), f64::INFINITY);
        assert!((far(&[1.0, 2.5]) - (0.25_f64 / 5.0).sqrt()).abs() < 1e-12);
    }
}
