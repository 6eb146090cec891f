//! Owns rotary position embedding as data: one frequency per rotated pair, computed once from the config.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RopeId(pub u32);

/// Which two elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeStyle {
    /// Element i with i + dims/2.
    Neox,
    /// Element 2i with 2i + 1.
    Interleaved,
}

/// How a config stretches the frequencies beyond the context it was trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// All positions divided by `factor`.
    Linear {
        factor: f32,
    },
    /// Llama 3: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        factor: f32,
        low_freq_factor: f32,
        high_freq_factor: f32,
        original_context: f32,
    },
    /// One divisor per frequency, as GGUF files store Llama 3's.
    Divisors(Vec<f32>),
}

/// Rotation of the first `dims` elements of each head: pair i turns by `position * inverse_frequencies[i]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rope {
    pub style: RopeStyle,
    pub dims: usize,
    #[serde(skip)]
    pub inverse_frequencies: Vec<f32>,
    /// Multiplies what was rotated: LongRoPE's sharpening of attention. 1 elsewhere.
    pub magnitude: f32,
}

impl Rope {
    pub fn new(style: RopeStyle, dims: usize, base: f32, scaling: &RopeScaling) -> Rope {
        let inverse_frequencies = (0..dims / 2)
            .map(|i| {
                let frequency = 1.0 / (base as f64).powf((2 * i) as f64 / dims as f64) as f32;
                scaled(frequency, i, scaling)
            })
            .collect();
        Rope {
            style,
            dims,
            inverse_frequencies,
            magnitude: 1.0,
        }
    }
}

fn scaled(frequency: f32, index: usize, scaling: &RopeScaling) -> f32 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Divisors(divisors) => frequency / divisors[index],
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context,
        } => {
            let wavelength = 2.0 * std::f32::consts::PI / frequency;
            if wavelength > original_context / low_freq_factor {
                frequency / factor
            } else if wavelength < original_context / high_freq_factor {
                frequency
            } else {
                let smooth = (original_context / wavelength - low_freq_factor)
                    / (high_freq_factor - low_freq_factor);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_scaling_keeps_high_and_divides_low_frequencies() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        };
        let plain = Rope::new(RopeStyle::Neox, 128, 500_000.0, &RopeScaling::None);
        let scaled = Rope::new(RopeStyle::Neox, 128, 500_000.0, &scaling);
        let ratio = |i: usize| plain.inverse_frequencies[i] / scaled.inverse_frequencies[i];
        assert_eq!(ratio(0), 1.0);
        assert_eq!(ratio(63), 8.0);
        assert!(
            (0..63).any(|i| ratio(i) > 1.1 && ratio(i) < 7.9),
            "the ramp is used"
        );
    }
}
