//! Owns the measures of difference between two sets of log-probabilities.

/// How far two equally long lists of numbers are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    pub mean: f64,
    pub max: f64,
}

impl Difference {
    /// A value that is not a number on either side counts as infinitely far.
    pub fn between(a: &[f32], b: &[f32]) -> Difference {
        assert_eq!(a.len(), b.len(), "only equally many numbers compare");
        let distances = a.iter().zip(b).map(|(a, b)| {
            let distance = (*a as f64 - *b as f64).abs();
            if distance.is_nan() {
                f64::INFINITY
            } else {
                distance
            }
        });
        let (sum, max) = distances.fold((0.0, 0.0_f64), |(sum, max), d| (sum + d, max.max(d)));
        Difference {
            mean: sum / a.len().max(1) as f64,
            max,
        }
    }
}

/// The log-probabilities of a row of logits, computed in f64.
pub fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let largest = logits.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b)) as f64;
    let sum: f64 = logits.iter().map(|l| (*l as f64 - largest).exp()).sum();
    let shift = largest + sum.ln();
    logits.iter().map(|l| (*l as f64 - shift) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_never_close() {
        assert_eq!(Difference::between(&[1.0], &[f32::NAN]).max, f64::INFINITY);
        let difference = Difference::between(&[1.0, 2.0], &[1.5, 2.0]);
        assert_eq!((difference.mean, difference.max), (0.25, 0.5));
    }

    #[test]
    fn probabilities_add_up_to_one() {
        let sum: f32 = log_softmax(&[1.0, 1000.0, 999.0])
            .iter()
            .map(|l| l.exp())
            .sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }
}
