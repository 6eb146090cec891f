//! Owns the clamped gate of gpt-oss.

use super::eights::{Eight, for_eights};
use super::exp::exp;
use crate::isa::for_each_isa;
use crate::lanes::Lanes;

struct Clamped<L> {
    limit: L,
    alpha: L,
}

impl<L: Lanes> Eight<L, 2> for Clamped<L> {
    #[inline(always)]
    fn apply(&self, [gate, up]: [L; 2]) -> L {
        // In this order a NaN stays one.
        let gate = self.limit.smaller(gate);
        let least = L::splat(-0.0).sub(self.limit);
        let up = self.limit.smaller(least.larger(up));
        let negative = L::splat(-0.0).sub(gate.mul(self.alpha));
        let one = L::splat(1.0);
        gate.div(one.add(exp(negative))).mul(up.add(one))
    }
}

for_each_isa! {
    /// `out = gate * sigmoid(alpha * gate) * (up + 1)`, gate at most `limit` and up within it on both sides.
    pub fn clamped_swiglu<L>(gate: &[f32], up: &[f32], limit: f32, alpha: f32, out: &mut [f32]) {
        let (limit, alpha) = (L::splat(limit), L::splat(alpha));
        for_eights::<L, 2>([gate, up], out, Clamped { limit, alpha });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn every_instruction_set_agrees_and_matches_f64() {
        let gate: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) / 30.0).collect();
        let up: Vec<f32> = (0..1003).map(|i| (i % 23) as f32 - 11.0).collect();
        let mut reference = vec![f32::NAN; gate.len()];
        clamped_swiglu(Isa::Scalar, &gate, &up, 7.0, 1.702, &mut reference);
        for (i, value) in reference.iter().enumerate() {
            let (g, u) = ((gate[i] as f64).min(7.0), (up[i] as f64).clamp(-7.0, 7.0));
            let truth = g / (1.0 + (-1.702_f32 as f64 * g).exp()) * (u + 1.0);
            let difference = (*value as f64 - truth).abs();
            assert!(difference <= 4e-6 * truth.abs() + 1e-30, "{g} {u}: {value}");
        }
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; gate.len()];
            clamped_swiglu(isa, &gate, &up, 7.0, 1.702, &mut out);
            assert_eq!(out, reference, "{isa}");
            for (gate, up) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
                let mut out = [0.0];
                clamped_swiglu(isa, &[gate], &[up], 7.0, 1.702, &mut out);
                assert!(out[0].is_nan(), "{isa}");
            }
        }
    }
}
