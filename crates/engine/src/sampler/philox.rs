//! Owns the random numbers: Philox4x32-10, a counter-based generator whose output depends on key and counter alone.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Four random words for this counter under this key.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let wide = |i: usize| u64::from(MULTIPLIERS[i]) * u64::from(counter[2 * i]);
        let (a, b) = (wide(0), wide(1));
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// A number in [0, 1) for the token at `position` of a request with this seed: whatever else is in the batch and in
/// whatever order tokens are drawn, it is the same.
pub fn uniform(seed: u64, position: u64) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, 0, 0];
    let words = philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(words[0]) << 32 | u64::from(words[1]);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The seed of one choice of a request with this seed: its own for the first, and for the others one that no neighbouring
/// seed shares. The last counter word keeps these numbers apart from those of `uniform`.
pub fn choice_seed(seed: u64, choice: usize) -> u64 {
    if choice == 0 {
        return seed;
    }
    let words = philox4x32([choice as u32, 0, 0, 1], [seed as u32, (seed >> 32) as u32]);
    u64::from(words[0]) << 32 | u64::from(words[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's published known answers: all zeros, all ones, and the digits of pi.
    #[test]
    fn known_answers() {
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_numbers_fill_their_interval_evenly() {
        let mut counts = [0u32; 20];
        for position in 0..20_000 {
            let u = uniform(42, position);
            assert!((0.0..1.0).contains(&u));
            counts[(u * 20.0) as usize] += 1;
        }
        let chi_square: f64 = counts
            .iter()
            .map(|c| (f64::from(*c) - 1000.0).powi(2) / 1000.0)
            .sum();
        // 19 degrees of freedom: 43.8 is exceeded once in a thousand.
        assert!(chi_square < 43.8, "{chi_square}");
        assert_ne!(uniform(42, 7), uniform(43, 7));
        assert_ne!(uniform(42, 7), uniform(42 + (1 << 32), 7));
        assert_ne!(uniform(42, 7), uniform(42, 7 + (1 << 32)));
    }

    #[test]
    fn choices_have_seeds_of_their_own() {
        let seeds: std::collections::HashSet<u64> = (0..20)
            .flat_map(|seed| (0..20).map(move |choice| choice_seed(seed, choice)))
            .collect();
        assert_eq!(seeds.len(), 400);
        assert_eq!(choice_seed(7, 0), 7);
    }
}
