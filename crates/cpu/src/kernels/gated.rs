//! Owns gated activations: `activation(gate) * up`.

use super::eights::{Eight, for_eights};
use super::nonlinear::{Gelu, GeluTanh, Nonlinear, Relu, Silu, times_sigmoid};
use crate::isa::{Isa, for_each_isa};
use crate::lanes::Floats;
use mettle_plan::Activation;

struct Gated<F>(F);

impl<L: Floats, F: Nonlinear<L>> Eight<L, 2> for Gated<F> {
    #[inline(always)]
    fn apply(&self, [gate, up]: [L; 2]) -> L {
        self.0.of(gate).mul(up)
    }
}

struct ClampedSwiglu<L> {
    limit: L,
    alpha: L,
}

impl<L: Floats> Eight<L, 2> for ClampedSwiglu<L> {
    #[inline(always)]
    fn apply(&self, [gate, up]: [L; 2]) -> L {
        let lowest = L::splat(-0.0).sub(self.limit);
        let gate = self.limit.smaller(gate);
        let up = lowest.larger(self.limit.smaller(up));
        times_sigmoid(gate, gate.mul(self.alpha)).mul(up.add(L::splat(1.0)))
    }
}

/// `out = activation(gate) * up`.
pub fn gated(isa: Isa, activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match activation {
        Activation::Silu => silu_mul(isa, gate, up, out),
        Activation::GeluTanh => gelu_tanh_mul(isa, gate, up, out),
        Activation::Gelu => gelu_mul(isa, gate, up, out),
        Activation::Relu => relu_mul(isa, gate, up, out),
        Activation::ClampedSwiglu { limit, alpha } => {
            clamped_swiglu(isa, gate, up, limit, alpha, out)
        }
    }
}

/// The names under which the kernels are counted.
pub const fn name(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => "silu_mul",
        Activation::GeluTanh => "gelu_tanh_mul",
        Activation::Gelu => "gelu_mul",
        Activation::Relu => "relu_mul",
        Activation::ClampedSwiglu { .. } => "clamped_swiglu",
    }
}

for_each_isa! {
    fn silu_mul<L>(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for_eights::<L::Wide, 2>([gate, up], out, Gated(Silu));
    }
}

for_each_isa! {
    fn gelu_tanh_mul<L>(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for_eights::<L::Wide, 2>([gate, up], out, Gated(GeluTanh));
    }
}

for_each_isa! {
    fn gelu_mul<L>(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for_eights::<L::Wide, 2>([gate, up], out, Gated(Gelu));
    }
}

for_each_isa! {
    fn relu_mul<L>(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for_eights::<L::Wide, 2>([gate, up], out, Gated(Relu));
    }
}

for_each_isa! {
    fn clamped_swiglu<L>(gate: &[f32], up: &[f32], limit: f32, alpha: f32, out: &mut [f32]) {
        let (limit, alpha) = (L::Wide::splat(limit), L::Wide::splat(alpha));
        for_eights::<L::Wide, 2>([gate, up], out, ClampedSwiglu { limit, alpha });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The activations themselves are held against f64 in `nonlinear`.
    #[test]
    fn every_instruction_set_agrees_and_the_gate_is_the_first() {
        let gate: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) / 4.0).collect();
        let up: Vec<f32> = (0..1003).map(|i| (i % 13) as f32 - 6.0).collect();
        let (limit, alpha) = (7.0, 1.702);
        for activation in [
            Activation::Silu,
            Activation::GeluTanh,
            Activation::Gelu,
            Activation::Relu,
            Activation::ClampedSwiglu { limit, alpha },
        ] {
            let mut reference = vec![f32::NAN; gate.len()];
            gated(Isa::Scalar, activation, &gate, &up, &mut reference);
            for isa in Isa::available() {
                let mut out = vec![f32::NAN; gate.len()];
                gated(isa, activation, &gate, &up, &mut out);
                assert_eq!(out, reference, "{isa} {activation:?}");
            }
            for (i, value) in reference.iter().enumerate() {
                let (g, u) = (gate[i] as f64, up[i] as f64);
                let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                let truth = match activation {
                    Activation::Silu => g * sigmoid(g) * u,
                    Activation::Relu => g.max(0.0) * u,
                    Activation::ClampedSwiglu { .. } => {
                        let g = g.min(7.0);
                        g * sigmoid(alpha as f64 * g) * (u.clamp(-7.0, 7.0) + 1.0)
                    }
                    // Far from 0 both are the identity or nothing.
                    _ if g.abs() > 6.0 => g.max(0.0) * u,
                    _ => continue,
                };
                let difference = (*value as f64 - truth).abs();
                assert!(
                    difference <= 2e-6 * (1.0 + truth.abs()),
                    "{activation:?} {g} {u}: {value}"
                );
            }
        }
    }
}
