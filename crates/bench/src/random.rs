//! Owns the random numbers of a benchmark: the same ones for the same seed, on every machine.

/// SplitMix64: one addition and one mix a number, which is plenty for prompts and arrivals.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Another sequence for each `number`, though the seed is the same.
    pub fn fork(seed: u64, number: u64) -> Random {
        Random(Random(seed ^ number.wrapping_mul(0xD134_2543_DE82_EF95)).draw())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `count - 1`.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "there is nothing below 0");
        // The high half of a 128-bit product is even enough for counts far below 2^64.
        ((u128::from(self.draw()) * count as u128) >> 64) as usize
    }

    /// Above 0, at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// The time until the next event, where `rate` happen a second.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -self.unit().ln() / rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_numbers_and_forks_differ() {
        let take = |mut random: Random| [random.draw(), random.draw(), random.draw()];
        assert_eq!(take(Random::new(7)), take(Random::new(7)));
        assert_ne!(take(Random::fork(7, 0)), take(Random::fork(7, 1)));
        // The published first outputs for the seed 0.
        assert_eq!(
            take(Random::new(0)),
            [
                0xE220_A839_7B1D_CDAF,
                0x6E78_9E6A_A1B9_65F4,
                0x06C4_5D18_8009_454F
            ]
        );
    }

    #[test]
    fn gaps_have_the_mean_of_their_rate() {
        let mut random = Random::new(3);
        let sum: f64 = (0..100_000).map(|_| random.exponential(4.0)).sum();
        assert!((sum / 100_000.0 - 0.25).abs() < 0.005, "{sum}");
        assert!((0..10_000).all(|_| random.below(3) < 3));
    }
}
