//! Owns the nonlinear functions of feed-forwards: each one sequence of f32 operations for all instruction sets.

use super::exp::exp;
use crate::lanes::Floats;

/// A function of one value. Types and not closures: closures are compiled without the instructions.
pub trait Nonlinear<F: Floats>: Copy {
    fn of(&self, x: F) -> F;
}

#[derive(Clone, Copy)]
pub struct Silu;
/// The approximation with tanh.
#[derive(Clone, Copy)]
pub struct GeluTanh;
/// With the error function.
#[derive(Clone, Copy)]
pub struct Gelu;
#[derive(Clone, Copy)]
pub struct Relu;

/// `x / (1 + e^-y)`
#[inline(always)]
pub fn times_sigmoid<F: Floats>(x: F, y: F) -> F {
    let negative = F::splat(-0.0).sub(y);
    x.div(F::splat(1.0).add(exp(negative)))
}

impl<F: Floats> Nonlinear<F> for Silu {
    #[inline(always)]
    fn of(&self, x: F) -> F {
        times_sigmoid(x, x)
    }
}

impl<F: Floats> Nonlinear<F> for GeluTanh {
    /// `x / 2 * (1 + tanh(y))` is `x * sigmoid(2 y)`.
    #[inline(always)]
    fn of(&self, x: F) -> F {
        // 2 * sqrt(2 / pi)
        const LINEAR: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::SQRT_2;
        const CUBIC: f64 = 0.044715 * LINEAR;
        let linear = F::splat(LINEAR as f32);
        let factor = x.mul(x).mul_add(F::splat(CUBIC as f32), linear);
        times_sigmoid(x, factor.mul(x))
    }
}

impl<F: Floats> Nonlinear<F> for Gelu {
    #[inline(always)]
    fn of(&self, x: F) -> F {
        let half = F::splat(0.5).mul(x);
        let erf = erf(x.mul(F::splat(std::f32::consts::FRAC_1_SQRT_2)));
        half.mul_add(erf, half)
    }
}

impl<F: Floats> Nonlinear<F> for Relu {
    #[inline(always)]
    fn of(&self, x: F) -> F {
        F::splat(0.0).larger(x)
    }
}

/// The error function, within 3e-7. Both polynomials are our own fits.
#[inline(always)]
fn erf<F: Floats>(x: F) -> F {
    let square = x.mul(x);
    // erf(x) / x for |x| up to 1.
    let p = F::splat(7.882_497_4e-5);
    let p = p.mul_add(square, F::splat(-8.018_855e-4));
    let p = p.mul_add(square, F::splat(5.189_312e-3));
    let p = p.mul_add(square, F::splat(-2.685_432_9e-2));
    let p = p.mul_add(square, F::splat(0.112_835_97));
    let p = p.mul_add(square, F::splat(-0.376_126_26));
    let p = p.mul_add(square, F::splat(std::f32::consts::FRAC_2_SQRT_PI));
    let small = p.mul(x);
    let negative = F::splat(-0.0).sub(x);
    let (size, minus_size) = (x.larger(negative), x.smaller(negative));
    // -ln(1 - erf(x)) for x from 1 to 4; behind that erf is 1.
    let t = F::splat(4.0).smaller(size);
    let q = F::splat(-1.614_061_6e-6);
    let q = q.mul_add(t, F::splat(4.559_062_3e-5));
    let q = q.mul_add(t, F::splat(-5.927_695_3e-4));
    let q = q.mul_add(t, F::splat(4.740_222_4e-3));
    let q = q.mul_add(t, F::splat(-2.636_471_8e-2));
    let q = q.mul_add(t, F::splat(0.109_978_24));
    let q = q.mul_add(t, F::splat(0.631_937_1));
    let q = q.mul_add(t, F::splat(1.130_166_6));
    let q = q.mul_add(t, F::splat(-3.032_129_6e-4));
    let rest = exp(F::splat(-0.0).sub(q));
    let large = F::splat(1.0).sub(rest);
    // One of the three is not 0: large, minus large, small.
    let below_one = 1.0_f32.next_down();
    let plus = large.zero_where_below(x, 1.0);
    let minus = large.zero_where_below(negative, 1.0);
    let small = small.zero_where_below(minus_size, -below_one);
    plus.sub(minus).add(small)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Lanes, Plain};

    fn at(f: impl Nonlinear<Plain>, x: f32) -> f64 {
        f.of(Plain::splat(x)).to_array()[0] as f64
    }

    /// The error function by its series, in f64: 1e-12 or better up to 5.
    fn erf(x: f64) -> f64 {
        if x.abs() > 5.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn close_to_the_true_values() {
        for i in -20_000..=20_000 {
            let x = i as f32 * 1e-3;
            let d = x as f64;
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (d + 0.044715 * d.powi(3));
            let checks = [
                ("silu", at(Silu, x), d / (1.0 + (-d).exp())),
                ("gelu tanh", at(GeluTanh, x), 0.5 * d * (1.0 + inner.tanh())),
                (
                    "gelu",
                    at(Gelu, x),
                    0.5 * d * (1.0 + erf(d / std::f64::consts::SQRT_2)),
                ),
                ("relu", at(Relu, x), d.max(0.0)),
            ];
            for (name, found, truth) in checks {
                let allowed = 4e-7 * d.abs().max(1e-3);
                assert!(
                    (found - truth).abs() <= allowed,
                    "{name}({x}): {found} {truth}"
                );
            }
        }
    }

    #[test]
    fn edges() {
        for x in [1000.0, 1e30, f32::INFINITY] {
            assert_eq!(at(Silu, x), x as f64);
            assert_eq!(at(GeluTanh, x), x as f64);
            assert_eq!(at(Gelu, x), x as f64);
            assert_eq!(at(Relu, x), x as f64);
            assert_eq!(at(Relu, -x), 0.0);
        }
        for x in [-1000.0, -1e18] {
            assert!(at(Silu, x).abs() < 1e-6);
            assert!(at(GeluTanh, x).abs() < 1e-6);
            assert_eq!(at(Gelu, x).abs(), 0.0);
        }
        assert!(at(Silu, f32::NAN).is_nan() && at(Gelu, f32::NAN).is_nan());
        assert!(at(GeluTanh, f32::NAN).is_nan() && at(Relu, f32::NAN).is_nan());
    }
}
