//! Owns e^x: one sequence of f32 operations for all instruction sets, within 2 units in the last place.

use crate::lanes::Floats;

/// Below it, `e^x` is 0: the smallest normal number is near.
pub const LOWEST: f32 = -87.3;
pub const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts: the first has few enough bits that its product with n is exact.
pub const LN2_HIGH: f32 = 0.693_359_4;
pub const LN2_LOW: f32 = -2.121_944_4e-4;
/// The Cephes library's polynomial for (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2.
pub const POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
];

/// `e^x`; 0 below -87.3, the largest power before overflow above 88.3.
#[inline(always)]
pub fn exp<F: Floats>(x: F) -> F {
    let inside = F::splat(88.3).smaller(F::splat(LOWEST).larger(x));
    powers([inside])[0].zero_where_below(x, LOWEST)
}

/// The same bits for several registers of values of at most 0, side by side: each step waits for the one before it, and one
/// register after the other would fill the processor's queues with what waits.
#[inline(always)]
pub fn exp_of_negatives<F: Floats, const N: usize>(x: [F; N]) -> [F; N] {
    let mut y = powers(x);
    for i in 0..N {
        y[i] = y[i].zero_where_below(x[i], LOWEST);
    }
    y
}

/// `e^x` from -87.3 to 88.3, and anything outside.
#[inline(always)]
fn powers<F: Floats, const N: usize>(x: [F; N]) -> [F; N] {
    let (mut r, mut n) = (x, x);
    for i in 0..N {
        n[i] = r[i].mul(F::splat(LOG2_E)).round();
    }
    for i in 0..N {
        r[i] = n[i].mul_add(F::splat(-LN2_HIGH), r[i]);
    }
    for i in 0..N {
        r[i] = n[i].mul_add(F::splat(-LN2_LOW), r[i]);
    }
    let mut y = [F::splat(POLYNOMIAL[0]); N];
    for factor in &POLYNOMIAL[1..] {
        for i in 0..N {
            y[i] = y[i].mul_add(r[i], F::splat(*factor));
        }
    }
    for i in 0..N {
        y[i] = y[i].mul_add(r[i].mul(r[i]), r[i].add(F::splat(1.0)));
    }
    for i in 0..N {
        // n is within -126..=127, so the power is a normal number.
        y[i] = y[i].times_power_of_two(n[i]);
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Lanes, Plain};

    fn exp(x: f32) -> f32 {
        super::exp(Plain::splat(x)).to_array()[0]
    }

    #[test]
    fn close_to_the_true_value_everywhere() {
        let mut worst = 0.0_f64;
        for i in -872_000..=883_000 {
            let x = i as f32 * 1e-4;
            let truth = (x as f64).exp();
            let unit = (truth as f32).next_up() as f64 - truth as f32 as f64;
            worst = worst.max((exp(x) as f64 - truth).abs() / unit);
        }
        assert!(worst < 2.0, "{worst} units in the last place");
    }

    #[test]
    fn edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-100.0), 0.0);
        assert!(exp(1000.0).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn of_negatives_the_same_bits() {
        let edges = [0.0, -0.0, -87.3, -87.300_01, f32::MIN, f32::NEG_INFINITY];
        let between = (0..=900_000).map(|i| i as f32 * -1e-4);
        for x in edges.into_iter().chain(between) {
            let [found] = exp_of_negatives([Plain::splat(x)]);
            assert_eq!(found.to_array()[0].to_bits(), exp(x).to_bits(), "{x}");
        }
        let [nan] = exp_of_negatives([Plain::splat(f32::NAN)]);
        assert!(nan.to_array()[0].is_nan());
    }
}
