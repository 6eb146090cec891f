//! Owns RMS norm of a row: eight interleaved sums of squares, added up as a fixed tree.

use crate::isa::for_each_isa;

const LANES: usize = 8;

for_each_isa! {
    /// `out = x / rms(x) * (weight + offset)`; without a weight, `x / rms(x)`.
    pub fn rms_norm(x: &[f32], weight: Option<&[f32]>, offset: f32, eps: f32, out: &mut [f32]) {
        let scale = inverse_rms(x, eps);
        match weight {
            Some(weight) => {
                for ((o, x), w) in out.iter_mut().zip(x).zip(weight) {
                    *o = x * scale * (w + offset);
                }
            }
            None => {
                for (o, x) in out.iter_mut().zip(x) {
                    *o = x * scale;
                }
            }
        }
    }
}

for_each_isa! {
    /// The norm of each head of `head_dim` elements, in place.
    pub fn rms_norm_heads(x: &mut [f32], head_dim: usize, weight: &[f32], offset: f32, eps: f32) {
        for head in x.chunks_exact_mut(head_dim) {
            let scale = inverse_rms(head, eps);
            for (x, w) in head.iter_mut().zip(weight) {
                *x = *x * scale * (w + offset);
            }
        }
    }
}

for_each_isa! {
    /// `x += y`.
    pub fn add(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum = x.mul_add(*x, *sum);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum = x.mul_add(*x, *sum);
    }
    1.0 / (reduce(&sums) / x.len() as f32 + eps).sqrt()
}

/// The sum of eight lanes in the order that halving a register gives.
#[inline(always)]
pub fn reduce(s: &[f32; LANES]) -> f32 {
    ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn every_instruction_set_agrees_and_matches_f64() {
        for n in [1, 7, 8, 9, 48, 576, 1001] {
            let x: Vec<f32> = (0..n)
                .map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0)
                .collect();
            let weight: Vec<f32> = (0..n).map(|i| 1.0 + (i % 5) as f32 / 10.0).collect();
            let mean = x.iter().map(|x| (*x as f64).powi(2)).sum::<f64>() / n as f64;
            let mut reference = vec![f32::NAN; n];
            rms_norm(Isa::Scalar, &x, Some(&weight), 0.0, 1e-5, &mut reference);
            for i in 0..n {
                let truth = x[i] as f64 / (mean + 1e-5).sqrt() * weight[i] as f64;
                assert!((reference[i] as f64 - truth).abs() < 1e-5, "n {n} i {i}");
            }
            for isa in Isa::available() {
                let mut out = vec![f32::NAN; n];
                rms_norm(isa, &x, Some(&weight), 0.0, 1e-5, &mut out);
                assert_eq!(out, reference, "{isa} n {n}");
                let mut heads = x.clone();
                rms_norm_heads(isa, &mut heads, n, &weight, 0.0, 1e-5);
                assert_eq!(heads, reference, "{isa} n {n} as one head");
            }
        }
    }
}
