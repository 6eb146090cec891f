//! Owns tanh, and the softcap made of it: one sequence of f32 operations for all instruction sets.

use super::eights::{Eight, for_eights_in_place};
use super::exp::exp;
use crate::isa::for_each_isa;
use crate::lanes::Lanes;

/// Below it `1 - 2 / (e^2x + 1)` would lose digits.
const SMALL: f32 = 0.625;

/// Within 4 units in the last place.
#[inline(always)]
pub fn tanh<L: Lanes>(x: L) -> L {
    let one = L::splat(1.0);
    let large = one.sub(L::splat(2.0).div(exp(x.add(x)).add(one)));
    // Our own fit of (tanh(x) / x - 1) / x^2 for |x| below SMALL.
    let square = x.mul(x);
    let p = L::splat(-6.104_733_3e-3);
    let p = p.mul_add(square, L::splat(2.100_349_4e-2));
    let p = p.mul_add(square, L::splat(-5.385_246_5e-2));
    let p = p.mul_add(square, L::splat(0.133_327_83));
    let p = p.mul_add(square, L::splat(-0.333_333_28));
    let small = p.mul_add(square.mul(x), x);
    let negative = L::splat(-0.0).sub(x);
    let (size, minus_size) = (x.larger(negative), x.smaller(negative));
    // One of the two is 0.
    let small = small.zero_where_below(minus_size, -SMALL.next_down());
    large.zero_where_below(size, SMALL).add(small)
}

/// `cap * tanh(x / cap)`.
#[inline(always)]
pub fn softcap<L: Lanes>(x: L, cap: L) -> L {
    tanh(x.div(cap)).mul(cap)
}

struct Softcap<L>(L);

impl<L: Lanes> Eight<L, 2> for Softcap<L> {
    #[inline(always)]
    fn apply(&self, [x, _]: [L; 2]) -> L {
        softcap(x, self.0)
    }
}

for_each_isa! {
    /// Caps every value of a row.
    pub fn softcap_row<L>(x: &mut [f32], cap: f32) {
        for_eights_in_place::<L>(x, None, Softcap(L::splat(cap)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::lanes::{Floats, Plain};

    fn tanh(x: f32) -> f32 {
        super::tanh(Plain::splat(x)).to_array()[0]
    }

    #[test]
    fn close_to_the_true_value_everywhere() {
        let mut worst = (0.0_f64, 0.0);
        for i in -1_000_000..=1_000_000 {
            let x = i as f32 * 1e-5;
            let truth = (x as f64).tanh();
            let size = truth.abs() as f32;
            let unit = size.next_up() as f64 - size as f64;
            let off = (tanh(x) as f64 - truth).abs() / unit;
            worst = if off > worst.0 { (off, x) } else { worst };
        }
        assert!(worst.0 < 4.0, "{worst:?} units in the last place");
    }

    #[test]
    fn edges() {
        assert_eq!(tanh(0.0), 0.0);
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!((tanh(1e30), tanh(-1e30)), (1.0, -1.0));
        assert!(tanh(f32::NAN).is_nan());
        for x in [SMALL.next_down(), SMALL, SMALL.next_up()] {
            assert!((tanh(x) as f64 - (x as f64).tanh()).abs() < 3e-7, "{x}");
            assert!((tanh(-x) as f64 + (x as f64).tanh()).abs() < 3e-7, "{x}");
        }
    }

    #[test]
    fn every_instruction_set_agrees() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) / 7.0).collect();
        let mut reference = x.clone();
        softcap_row(Isa::Scalar, &mut reference, 30.0);
        for (x, found) in x.iter().zip(&reference) {
            let truth = 30.0 * (*x as f64 / 30.0).tanh();
            assert!((*found as f64 - truth).abs() < 2e-5, "{x}: {found}");
        }
        for isa in Isa::available() {
            let mut out = x.clone();
            softcap_row(isa, &mut out, 30.0);
            assert_eq!(out, reference, "{isa}");
        }
    }
}
