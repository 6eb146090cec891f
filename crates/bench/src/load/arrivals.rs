//! Owns when requests arrive: all at once, or at random moments that are the same for the same seed.

use crate::random::Random;
use std::time::Duration;

/// Requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Nothing waits for a clock; only concurrency limits.
    Unlimited,
    /// A Poisson process: every moment is as likely as any other.
    PerSecond(f64),
}

impl Rate {
    /// When each of `count` requests arrives, after the start.
    pub fn arrivals(self, count: usize, seed: u64) -> Vec<Duration> {
        let Rate::PerSecond(rate) = self else {
            return vec![Duration::ZERO; count];
        };
        let mut random = Random::fork(seed, ARRIVALS);
        let mut at = 0.0;
        let gaps = (0..count).map(|_| {
            at += random.exponential(rate);
            at
        });
        let gaps: Vec<f64> = gaps.collect();
        // The drawn process is stretched to the length that the rate stands for, so that two seeds offer the same load.
        let stretch = match gaps.last() {
            Some(last) if *last > 0.0 => count as f64 / rate / last,
            _ => 1.0,
        };
        gaps.into_iter()
            .map(|at| Duration::from_secs_f64(at * stretch))
            .collect()
    }
}

/// A request in eleven days; what is slower is a slip of the finger.
const LOWEST: f64 = 0.000_001;
/// Its own sequence of random numbers: prompts drawn before or after do not move it.
const ARRIVALS: u64 = 0xA7;

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "inf" {
            return Ok(Rate::Unlimited);
        }
        let number = text.parse().ok();
        let number = number.filter(|rate: &f64| *rate >= LOWEST && rate.is_finite());
        let rate = number.map(Rate::PerSecond);
        rate.ok_or_else(|| format!("it must be a number from {LOWEST} on, or inf"))
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Rate::Unlimited => f.write_str("inf"),
            Rate::PerSecond(rate) => write!(f, "{rate}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_fixed_by_their_seed_and_keep_their_rate() {
        let rate = Rate::PerSecond(20.0);
        let first = rate.arrivals(1000, 1);
        assert_eq!(first, rate.arrivals(1000, 1));
        assert_ne!(first, rate.arrivals(1000, 2));
        assert!(first.is_sorted());
        assert!((first[999].as_secs_f64() - 50.0).abs() < 1e-6);
        // Of exponential gaps, 1 - 1/e are shorter than the mean.
        let gaps = first.windows(2).map(|pair| pair[1] - pair[0]);
        let short = gaps.filter(|gap| gap.as_secs_f64() < 0.05).count();
        assert!((590..=680).contains(&short), "{short}");
        assert_eq!(Rate::Unlimited.arrivals(2, 1), [Duration::ZERO; 2]);
    }

    #[test]
    fn rates_are_positive_numbers_or_inf() {
        assert_eq!("inf".parse(), Ok(Rate::Unlimited));
        assert_eq!("2.5".parse(), Ok(Rate::PerSecond(2.5)));
        for text in ["0", "-1", "1e-300", "nan", "infinity", "x", ""] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
