//! Owns layer norm of a row: its mean is taken off, then it is divided by its deviation. Sums as in RMS norm.

use super::eights::{Eight, for_eights};
use super::norm::inverse_rms;
use crate::isa::for_each_isa;
use crate::lanes::Lanes;

/// `x - mean`.
struct Centred<L>(L);

impl<L: Lanes> Eight<L, 1> for Centred<L> {
    #[inline(always)]
    fn apply(&self, [x]: [L; 1]) -> L {
        x.sub(self.0)
    }
}

/// `(x - mean) * scale * weight (+ bias)`.
struct Normed<L> {
    mean: L,
    scale: L,
}

impl<L: Lanes> Eight<L, 2> for Normed<L> {
    #[inline(always)]
    fn apply(&self, [x, weight]: [L; 2]) -> L {
        x.sub(self.mean).mul(self.scale).mul(weight)
    }
}

impl<L: Lanes> Eight<L, 3> for Normed<L> {
    #[inline(always)]
    fn apply(&self, [x, weight, bias]: [L; 3]) -> L {
        x.sub(self.mean).mul(self.scale).mul_add(weight, bias)
    }
}

for_each_isa! {
    /// `out = (x - mean(x)) / deviation(x) * weight (+ bias)`.
    pub fn layer_norm<L>(
        x: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        eps: f32,
        out: &mut [f32],
    ) {
        let mean = L::splat(mean::<L>(x));
        // The deviation is that of what is left, so that a large mean costs no accuracy.
        for_eights::<L, 1>([x], out, Centred(mean));
        let scale = L::splat(inverse_rms::<L>(out, eps));
        match bias {
            Some(bias) => for_eights::<L, 3>([x, weight, bias], out, Normed { mean, scale }),
            None => for_eights::<L, 2>([x, weight], out, Normed { mean, scale }),
        }
    }
}

#[inline(always)]
fn mean<L: Lanes>(x: &[f32]) -> f32 {
    let mut sums = L::splat(0.0);
    let mut at = 0;
    while at + 8 <= x.len() {
        // SAFETY: eight values from `at` on are inside the row.
        sums = sums.add(unsafe { L::load(x.as_ptr().add(at)) });
        at += 8;
    }
    let mut rest = [0.0; 8];
    rest[..x.len() - at].copy_from_slice(&x[at..]);
    // SAFETY: eight values. Zeros add nothing.
    let sums = sums.add(unsafe { L::load(rest.as_ptr()) });
    sums.sum() / x.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn every_instruction_set_agrees_and_matches_f64() {
        for n in [1, 7, 8, 9, 48, 384, 1001] {
            // Far from 0: the mean must really be taken off.
            let x: Vec<f32> = (0..n)
                .map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0 + 20.0)
                .collect();
            let weight: Vec<f32> = (0..n).map(|i| 1.0 + (i % 5) as f32 / 10.0).collect();
            let bias: Vec<f32> = (0..n).map(|i| (i % 3) as f32 - 1.2).collect();
            let mean = x.iter().map(|x| *x as f64).sum::<f64>() / n as f64;
            let squares = x.iter().map(|x| (*x as f64 - mean).powi(2));
            let deviation = (squares.sum::<f64>() / n as f64 + 1e-5).sqrt();
            for bias in [Some(&bias[..]), None] {
                let mut reference = vec![f32::NAN; n];
                layer_norm(Isa::Scalar, &x, &weight, bias, 1e-5, &mut reference);
                for i in 0..n {
                    let scaled = (x[i] as f64 - mean) / deviation * weight[i] as f64;
                    let truth = scaled + bias.map_or(0.0, |b| b[i] as f64);
                    // The mean is within 2e-6 of its true value here.
                    assert!((reference[i] as f64 - truth).abs() < 1e-5, "n {n} i {i}");
                }
                for isa in Isa::available() {
                    let mut out = vec![f32::NAN; n];
                    layer_norm(isa, &x, &weight, bias, 1e-5, &mut out);
                    assert_eq!(out, reference, "{isa} n {n}");
                }
            }
        }
    }
}
