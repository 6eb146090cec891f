//! Owns e^x: one sequence of f32 operations for all instruction sets, within 2 units in the last place.

use crate::lanes::Lanes;

/// `e^x`; 0 below -87.3, the largest power before overflow above 88.3.
#[inline(always)]
pub fn exp<L: Lanes>(x: L) -> L {
    exp_of_all([x])[0]
}

/// The same of several registers, side by side: each step waits for the one before it, and one register after the other
/// would fill the processor's queues with what waits.
#[inline(always)]
pub fn exp_of_all<L: Lanes, const N: usize>(x: [L; N]) -> [L; N] {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts: the first has few enough bits that its product with n is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // The Cephes library's polynomial for (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2.
    const POLYNOMIAL: [f32; 6] = [
        1.987_569_1e-4,
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ];
    let (mut r, mut n) = (x, x);
    for i in 0..N {
        r[i] = L::splat(88.3).smaller(L::splat(-87.3).larger(x[i]));
    }
    for i in 0..N {
        n[i] = r[i].mul(L::splat(LOG2_E)).round();
    }
    for i in 0..N {
        r[i] = n[i].mul_add(L::splat(-LN2_HIGH), r[i]);
    }
    for i in 0..N {
        r[i] = n[i].mul_add(L::splat(-LN2_LOW), r[i]);
    }
    let mut y = [L::splat(POLYNOMIAL[0]); N];
    for factor in &POLYNOMIAL[1..] {
        for i in 0..N {
            y[i] = y[i].mul_add(r[i], L::splat(*factor));
        }
    }
    for i in 0..N {
        y[i] = y[i].mul_add(r[i].mul(r[i]), r[i].add(L::splat(1.0)));
    }
    for i in 0..N {
        // n is within -126..=127, so the power is a normal number.
        y[i] = y[i].mul(n[i].power_of_two()).zero_where_below(x[i], -87.3);
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Plain;

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
}
