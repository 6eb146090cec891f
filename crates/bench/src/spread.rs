//! Owns repeated measurements of one thing: the best, the median, and how far they are apart.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub best: f64,
    pub median: f64,
    pub worst: f64,
}

impl Spread {
    /// Of seconds: the smallest is the best. Panics without any.
    pub fn of_seconds(seconds: &[f64]) -> Spread {
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        Spread {
            best: sorted[0],
            median: (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0,
            worst: sorted[sorted.len() - 1],
        }
    }

    /// What `amount` in each of these times is a second.
    pub fn rate(self, amount: f64) -> Spread {
        Spread {
            best: amount / self.best,
            median: amount / self.median,
            worst: amount / self.worst,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_time_is_the_best_rate() {
        let spread = Spread::of_seconds(&[4.0, 1.0, 2.0]);
        assert_eq!((spread.best, spread.median, spread.worst), (1.0, 2.0, 4.0));
        assert_eq!(Spread::of_seconds(&[4.0, 1.0]).median, 2.5);
        let rate = spread.rate(8.0);
        assert_eq!((rate.best, rate.median, rate.worst), (8.0, 4.0, 2.0));
    }
}
