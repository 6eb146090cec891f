//! Owns gated activations.

use super::eights::{Eight, for_eights};
use super::exp::exp;
use crate::isa::for_each_isa;
use crate::lanes::Lanes;

struct SiluMul;

impl<L: Lanes> Eight<L, 2> for SiluMul {
    #[inline(always)]
    fn apply(&self, [gate, up]: [L; 2]) -> L {
        let negative = L::splat(-0.0).sub(gate);
        gate.div(L::splat(1.0).add(exp(negative))).mul(up)
    }
}

for_each_isa! {
    /// `out = silu(gate) * up`.
    pub fn silu_mul<L>(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for_eights::<L, 2>([gate, up], out, SiluMul);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn every_instruction_set_agrees_and_matches_f64() {
        let gate: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) / 4.0).collect();
        let up: Vec<f32> = (0..1003).map(|i| (i % 13) as f32 - 6.0).collect();
        let mut reference = vec![f32::NAN; gate.len()];
        silu_mul(Isa::Scalar, &gate, &up, &mut reference);
        for (i, value) in reference.iter().enumerate() {
            let g = gate[i] as f64;
            let truth = g / (1.0 + (-g).exp()) * up[i] as f64;
            let difference = (*value as f64 - truth).abs();
            assert!(difference <= 1e-6 * truth.abs() + 1e-30, "{g}: {value}");
        }
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; gate.len()];
            silu_mul(isa, &gate, &up, &mut out);
            assert_eq!(out, reference, "{isa}");
        }
    }
}
