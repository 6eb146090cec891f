//! Owns `Elementwise` of a row, in place: sums, gates, scales and plain activations.

use super::eights::{Eight, for_eights_in_place};
use super::nonlinear::{Gelu, GeluTanh, Nonlinear, Relu, Silu, times_sigmoid};
use super::norm;
use crate::isa::{Isa, for_each_isa};
use crate::lanes::Lanes;
use mettle_plan::{Activation, Expr};

/// Whether there is a kernel for `expr`.
pub const fn can(expr: Expr) -> bool {
    !matches!(expr, Expr::Apply(Activation::ClampedSwiglu { .. }))
}

/// `x = expr(x, b)`; `b` is as long as `x`, and absent where `expr` has one input.
pub fn apply(isa: Isa, expr: Expr, x: &mut [f32], b: Option<&[f32]>) {
    let second = || b.expect("this expression has two inputs");
    match expr {
        Expr::Add => norm::add(isa, x, second()),
        Expr::SigmoidGate => sigmoid_gate(isa, x, second()),
        Expr::SiluGate => silu_gate(isa, x, second()),
        Expr::Scale(factor) => scale(isa, x, factor),
        Expr::ScaleBy(_) | Expr::AddRow(_) => unreachable!("a call looks up its weight"),
        Expr::Apply(Activation::Silu) => silu(isa, x),
        Expr::Apply(Activation::GeluTanh) => gelu_tanh(isa, x),
        Expr::Apply(Activation::Gelu) => gelu(isa, x),
        Expr::Apply(Activation::Relu) => relu(isa, x),
        Expr::Apply(Activation::ClampedSwiglu { .. }) => unreachable!("refused by `can`"),
    }
}

/// The same with one number for the whole row.
pub fn apply_one(isa: Isa, expr: Expr, x: &mut [f32], b: f32) {
    match expr {
        Expr::Add => shift(isa, x, b),
        Expr::SigmoidGate => sigmoid_gate_one(isa, x, b),
        Expr::SiluGate => silu_gate_one(isa, x, b),
        Expr::Scale(_) | Expr::ScaleBy(_) | Expr::AddRow(_) | Expr::Apply(_) => {
            unreachable!("these have one input")
        }
    }
}

/// The names under which the kernels are counted.
pub const fn name(expr: Expr) -> &'static str {
    match expr {
        Expr::Add | Expr::AddRow(_) => "add",
        Expr::SigmoidGate => "sigmoid_gate",
        Expr::SiluGate => "silu_gate",
        Expr::Scale(_) | Expr::ScaleBy(_) => "scale",
        Expr::Apply(Activation::Silu) => "silu",
        Expr::Apply(Activation::GeluTanh) => "gelu_tanh",
        Expr::Apply(Activation::Gelu) => "gelu",
        Expr::Apply(Activation::Relu) => "relu",
        Expr::Apply(Activation::ClampedSwiglu { .. }) => "none",
    }
}

struct SigmoidGate;

impl<L: Lanes> Eight<L, 2> for SigmoidGate {
    #[inline(always)]
    fn apply(&self, [x, gate]: [L; 2]) -> L {
        times_sigmoid(x, gate)
    }
}

struct SiluGate;

impl<L: Lanes> Eight<L, 2> for SiluGate {
    #[inline(always)]
    fn apply(&self, [x, gate]: [L; 2]) -> L {
        x.mul(Silu.of(gate))
    }
}

/// The second input is the same everywhere.
struct With<L, F>(L, F);

impl<L: Lanes, F: Eight<L, 2>> Eight<L, 2> for With<L, F> {
    #[inline(always)]
    fn apply(&self, [x, _]: [L; 2]) -> L {
        self.1.apply([x, self.0])
    }
}

struct Sum;

impl<L: Lanes> Eight<L, 2> for Sum {
    #[inline(always)]
    fn apply(&self, [x, y]: [L; 2]) -> L {
        x.add(y)
    }
}

struct Product;

impl<L: Lanes> Eight<L, 2> for Product {
    #[inline(always)]
    fn apply(&self, [x, y]: [L; 2]) -> L {
        x.mul(y)
    }
}

struct Of<F>(F);

impl<L: Lanes, F: Nonlinear<L>> Eight<L, 2> for Of<F> {
    #[inline(always)]
    fn apply(&self, [x, _]: [L; 2]) -> L {
        self.0.of(x)
    }
}

macro_rules! of_row {
    ($($name:ident: $op:expr;)*) => {
        $(for_each_isa! {
            fn $name<L>(x: &mut [f32]) {
                for_eights_in_place::<L>(x, None, $op);
            }
        })*
    };
}

of_row! {
    silu: Of(Silu);
    gelu_tanh: Of(GeluTanh);
    gelu: Of(Gelu);
    relu: Of(Relu);
}

macro_rules! of_two_rows {
    ($($name:ident: $op:expr;)*) => {
        $(for_each_isa! {
            fn $name<L>(x: &mut [f32], y: &[f32]) {
                for_eights_in_place::<L>(x, Some(y), $op);
            }
        })*
    };
}

of_two_rows! {
    sigmoid_gate: SigmoidGate;
    silu_gate: SiluGate;
}

macro_rules! of_row_and_number {
    ($($name:ident: $op:expr;)*) => {
        $(for_each_isa! {
            fn $name<L>(x: &mut [f32], y: f32) {
                for_eights_in_place::<L>(x, None, With(L::splat(y), $op));
            }
        })*
    };
}

of_row_and_number! {
    scale: Product;
    shift: Sum;
    sigmoid_gate_one: SigmoidGate;
    silu_gate_one: SiluGate;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(expr: Expr, x: f64, y: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match expr {
            Expr::Add => x + y,
            Expr::SigmoidGate => x * sigmoid(y),
            Expr::SiluGate => x * y * sigmoid(y),
            Expr::Scale(factor) => x * factor as f64,
            Expr::ScaleBy(_) | Expr::AddRow(_) => unreachable!("has no kernel of its own"),
            Expr::Apply(Activation::Silu) => x * sigmoid(x),
            Expr::Apply(Activation::Relu) => x.max(0.0),
            // Both forms of GELU agree to a thousandth.
            Expr::Apply(_) => x * sigmoid(1.595_769_1 * (x + 0.044715 * x.powi(3))),
        }
    }

    #[test]
    fn every_instruction_set_agrees_and_matches_f64() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) / 40.0).collect();
        let y: Vec<f32> = (0..1003).map(|i| (i % 13) as f32 - 6.0).collect();
        let two = [Expr::Add, Expr::SigmoidGate, Expr::SiluGate];
        let one = [
            Expr::Scale(0.3),
            Expr::Apply(Activation::Silu),
            Expr::Apply(Activation::GeluTanh),
            Expr::Apply(Activation::Gelu),
            Expr::Apply(Activation::Relu),
        ];
        for expr in two.into_iter().chain(one) {
            assert!(can(expr));
            let second = two.contains(&expr).then_some(&y[..]);
            let mut reference = x.clone();
            apply(Isa::Scalar, expr, &mut reference, second);
            for i in 0..x.len() {
                let truth = truth(expr, x[i] as f64, y[i] as f64);
                let allowed = match expr {
                    Expr::Apply(Activation::Gelu) => 1e-3,
                    _ => 2e-6 * (1.0 + truth.abs()),
                };
                assert!(
                    (reference[i] as f64 - truth).abs() <= allowed,
                    "{expr:?} {i}"
                );
            }
            for isa in Isa::available() {
                let mut out = x.clone();
                apply(isa, expr, &mut out, second);
                assert_eq!(out, reference, "{isa} {expr:?}");
                if second.is_some() {
                    let (mut row, mut number) = (x.clone(), x.clone());
                    apply(isa, expr, &mut row, Some(&vec![1.25; x.len()]));
                    apply_one(isa, expr, &mut number, 1.25);
                    assert_eq!(row, number, "{isa} {expr:?} with one number");
                }
            }
        }
    }
}
