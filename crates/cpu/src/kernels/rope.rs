//! Owns rotary position embedding: a table of angles made once a step, and the rotation of a head.

use crate::isa::for_each_isa;
use mettle_plan::{Rope, RopeStyle};

/// Fills `cosines` and `sines` with one value per pair for a token at `position`. The angle is the f32 product that
/// model code everywhere computes; its sine and cosine are those of that f32, to the last bit or so.
pub fn fill_angles(rope: &Rope, position: u32, cosines: &mut [f32], sines: &mut [f32]) {
    for ((frequency, c), s) in rope.inverse_frequencies.iter().zip(cosines).zip(sines) {
        let angle = (position as f32 * frequency) as f64;
        let (sine, cosine) = angle.sin_cos();
        *c = cosine as f32 * rope.magnitude;
        *s = sine as f32 * rope.magnitude;
    }
}

/// How a token's heads are rotated: their first `2 * cosines.len()` elements after `from`.
#[derive(Clone, Copy)]
pub struct Rotation<'a> {
    pub style: RopeStyle,
    pub from: usize,
    pub cosines: &'a [f32],
    pub sines: &'a [f32],
}

impl Rotation<'_> {
    /// Rotates every head of `x`.
    pub fn apply(&self, isa: crate::isa::Isa, x: &mut [f32], head_dim: usize) {
        let (cosines, sines) = (self.cosines, self.sines);
        for head in x.chunks_exact_mut(head_dim) {
            let rotated = &mut head[self.from..self.from + 2 * cosines.len()];
            match self.style {
                RopeStyle::Neox => rotate_halves(isa, rotated, cosines, sines),
                RopeStyle::Interleaved => rotate_pairs(rotated, cosines, sines),
            }
        }
    }
}

for_each_isa! {
    fn rotate_halves<L>(x: &mut [f32], cosines: &[f32], sines: &[f32]) {
        let pairs = cosines.len();
        assert!(x.len() == 2 * pairs && sines.len() == pairs, "a value and an angle each");
        let mut at = 0;
        while at + 8 <= pairs {
            // SAFETY: eight values from `at` on are inside both halves and both tables.
            unsafe {
                let low = x.as_mut_ptr().add(at);
                let high = low.add(pairs);
                let (c, s) = (L::load(cosines.as_ptr().add(at)), L::load(sines.as_ptr().add(at)));
                let (x, y) = (L::load(low), L::load(high));
                x.mul(c).sub(y.mul(s)).store(low);
                y.mul(c).add(x.mul(s)).store(high);
            }
            at += 8;
        }
        for i in at..pairs {
            let (a, b) = (x[i], x[pairs + i]);
            x[i] = a * cosines[i] - b * sines[i];
            x[pairs + i] = b * cosines[i] + a * sines[i];
        }
    }
}

/// Its products are few: one form for all instruction sets.
fn rotate_pairs(x: &mut [f32], cosines: &[f32], sines: &[f32]) {
    for i in 0..cosines.len() {
        let (a, b) = (x[2 * i], x[2 * i + 1]);
        x[2 * i] = a * cosines[i] - b * sines[i];
        x[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use mettle_plan::RopeScaling;

    #[test]
    fn both_styles_turn_by_the_angle_even_at_far_positions() {
        for position in [0, 1, 31, 8191, 131_071] {
            let rope = Rope::new(RopeStyle::Neox, 8, 10_000.0, &RopeScaling::None);
            let (mut c, mut s) = (vec![0.0; 4], vec![0.0; 4]);
            fill_angles(&rope, position, &mut c, &mut s);
            let rotation = |style, from| Rotation {
                style,
                from,
                cosines: &c,
                sines: &s,
            };
            for isa in Isa::available() {
                let mut halves = vec![9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
                rotation(RopeStyle::Neox, 1).apply(isa, &mut halves, 10);
                let mut pairs = vec![1.0, 5.0, 2.0, 6.0, 3.0, 7.0, 4.0, 8.0];
                rotation(RopeStyle::Interleaved, 0).apply(isa, &mut pairs, 8);
                assert_eq!((halves[0], halves[9]), (9.0, 9.0), "outside is untouched");
                for i in 0..4 {
                    let angle = (position as f32 * rope.inverse_frequencies[i]) as f64;
                    let (x, y) = ((i + 1) as f64, (i + 5) as f64);
                    let turned = x * angle.cos() - y * angle.sin();
                    assert!((halves[1 + i] as f64 - turned).abs() < 2e-6 * y);
                    assert_eq!(halves[1 + i], pairs[2 * i]);
                    assert_eq!(halves[5 + i], pairs[2 * i + 1]);
                }
            }
        }
    }
}
