//! Owns sums of rows by their shares: what a token's experts gave.

use super::eights::{Eight, for_eights};
use crate::isa::for_each_isa;
use crate::lanes::Lanes;

struct Scaled<L>(L);

impl<L: Lanes> Eight<L, 1> for Scaled<L> {
    #[inline(always)]
    fn apply(&self, [x]: [L; 1]) -> L {
        x.mul(self.0)
    }
}

for_each_isa! {
    /// `out = share * x`.
    pub fn scale<L>(x: &[f32], share: f32, out: &mut [f32]) {
        for_eights::<L, 1>([x], out, Scaled(L::splat(share)));
    }
}

for_each_isa! {
    /// `out += share * x`, rounded once.
    pub fn add_scaled<L>(x: &[f32], share: f32, out: &mut [f32]) {
        let len = out.len();
        assert_eq!(x.len(), len, "both rows are equally long");
        let factor = L::splat(share);
        let mut at = 0;
        while at + 8 <= len {
            // SAFETY: eight values from `at` on are inside both rows.
            unsafe {
                let sum = L::load(out.as_ptr().add(at));
                let sum = factor.mul_add(L::load(x.as_ptr().add(at)), sum);
                sum.store(out.as_mut_ptr().add(at));
            }
            at += 8;
        }
        for i in at..len {
            out[i] = share.mul_add(x[i], out[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn every_instruction_set_adds_alike() {
        for len in [1, 7, 8, 9, 64, 131] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin()).collect();
            let sums = |isa| {
                let mut out = vec![f32::NAN; len];
                scale(isa, &x, 0.6, &mut out);
                add_scaled(isa, &x, 0.37, &mut out);
                out
            };
            let reference = sums(Isa::Scalar);
            let truth = 0.6_f32 as f64 + 0.37_f32 as f64;
            for (x, found) in x.iter().zip(&reference) {
                assert!((*found as f64 - *x as f64 * truth).abs() < 1e-6, "{x}");
            }
            for isa in Isa::available() {
                assert_eq!(sums(isa), reference, "{isa} {len}");
            }
        }
    }
}
