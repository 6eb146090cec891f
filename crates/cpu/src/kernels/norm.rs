//! Owns RMS norm of a row: eight interleaved sums of squares, added up as a fixed tree.

use super::eights::{Eight, for_eights};
use crate::isa::for_each_isa;
use crate::lanes::Lanes;

/// `x * scale * (weight + offset)`.
struct Weighted<L> {
    scale: L,
    offset: L,
}

impl<L: Lanes> Eight<L, 2> for Weighted<L> {
    #[inline(always)]
    fn apply(&self, [x, weight]: [L; 2]) -> L {
        x.mul(self.scale).mul(weight.add(self.offset))
    }
}

/// `x * scale`.
struct Scaled<L>(L);

impl<L: Lanes> Eight<L, 1> for Scaled<L> {
    #[inline(always)]
    fn apply(&self, [x]: [L; 1]) -> L {
        x.mul(self.0)
    }
}

for_each_isa! {
    /// `out = x / rms(x) * (weight + offset)`; without a weight, `x / rms(x)`.
    pub fn rms_norm<L>(x: &[f32], weight: Option<&[f32]>, offset: f32, eps: f32, out: &mut [f32]) {
        let scale = L::splat(inverse_rms::<L>(x, eps));
        let offset = L::splat(offset);
        match weight {
            Some(weight) => for_eights::<L, 2>([x, weight], out, Weighted { scale, offset }),
            None => for_eights::<L, 1>([x], out, Scaled(scale)),
        }
    }
}

for_each_isa! {
    /// The norm of each head of `head_dim` elements, in place.
    pub fn rms_norm_heads<L>(
        x: &mut [f32],
        head_dim: usize,
        weight: Option<&[f32]>,
        offset: f32,
        eps: f32,
    ) {
        for head in x.chunks_exact_mut(head_dim) {
            let scale = inverse_rms::<L>(head, eps);
            for i in 0..head_dim {
                head[i] *= scale;
            }
            if let Some(weight) = weight {
                for i in 0..head_dim {
                    head[i] *= weight[i] + offset;
                }
            }
        }
    }
}

for_each_isa! {
    /// `x += y`.
    pub fn add<L>(x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "both rows are equally long");
        let mut at = 0;
        while at + 8 <= x.len() {
            // SAFETY: eight values from `at` on are inside both rows.
            unsafe {
                let sum = L::load(x.as_ptr().add(at)).add(L::load(y.as_ptr().add(at)));
                sum.store(x.as_mut_ptr().add(at));
            }
            at += 8;
        }
        for i in at..x.len() {
            x[i] += y[i];
        }
    }
}

#[inline(always)]
pub(super) fn inverse_rms<L: Lanes>(x: &[f32], eps: f32) -> f32 {
    let mut sums = L::splat(0.0);
    let mut at = 0;
    while at + 8 <= x.len() {
        // SAFETY: eight values from `at` on are inside the row.
        let values = unsafe { L::load(x.as_ptr().add(at)) };
        sums = values.mul_add(values, sums);
        at += 8;
    }
    let mut rest = [0.0; 8];
    rest[..x.len() - at].copy_from_slice(&x[at..]);
    // SAFETY: eight values. Zeros add nothing.
    let rest = unsafe { L::load(rest.as_ptr()) };
    let sums = rest.mul_add(rest, sums);
    1.0 / (sums.sum() / x.len() as f32 + eps).sqrt()
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
                rms_norm_heads(isa, &mut heads, n, Some(&weight), 0.0, 1e-5);
                assert_eq!(heads, reference, "{isa} n {n} as one head");
                let (mut plain, mut heads) = (vec![f32::NAN; n], x.clone());
                rms_norm(isa, &x, None, 0.0, 1e-5, &mut plain);
                rms_norm_heads(isa, &mut heads, n, None, 0.0, 1e-5);
                assert_eq!(heads, plain, "{isa} n {n} without a weight");
            }
        }
    }
}
