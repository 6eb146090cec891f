//! Owns YaRN: how it stretches rotary frequencies (as divisors) and sharpens attention.

use crate::config::Config;
use crate::error::Result;
use mettle_plan::RopeScaling;

pub struct Yarn {
    pub scaling: RopeScaling,
    /// Multiplies queries and keys, so its square multiplies the attention scores.
    pub attention_factor: f32,
    /// What DeepSeek multiplies its attention scale by, once for queries and once for keys.
    pub all_dimensions_factor: f32,
}

/// What configs say of it.
#[derive(Clone, Copy, Debug)]
pub struct YarnNumbers {
    pub factor: f32,
    pub beta_fast: f32,
    pub beta_slow: f32,
    pub truncate: bool,
    pub original_context: f32,
    pub attention_factor: Option<f32>,
    pub mscale: Option<f32>,
    pub mscale_all: Option<f32>,
}

impl YarnNumbers {
    /// With the defaults of transformers, and of the paper.
    pub fn new(factor: f32, original_context: f32) -> YarnNumbers {
        YarnNumbers {
            factor,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            original_context,
            attention_factor: None,
            mscale: None,
            mscale_all: None,
        }
    }

    pub fn read(config: &Config) -> Result<YarnNumbers> {
        config.must_be("type", "yarn")?;
        config.must_be("rope_type", "yarn")?;
        let factor = config.positive("factor")?;
        let original = config.positive("original_max_position_embeddings")?;
        let default = YarnNumbers::new(factor, original);
        let fast = config.float_or_none("beta_fast")?;
        let slow = config.float_or_none("beta_slow")?;
        let truncate = config.flag_or_none("truncate")?;
        let mscale =
            |key| -> Result<Option<f32>> { Ok(config.float_or_none(key)?.filter(|m| *m != 0.0)) };
        Ok(YarnNumbers {
            beta_fast: fast.unwrap_or(default.beta_fast),
            beta_slow: slow.unwrap_or(default.beta_slow),
            truncate: truncate.unwrap_or(default.truncate),
            attention_factor: config.float_or_none("attention_factor")?,
            mscale: mscale("mscale")?,
            mscale_all: mscale("mscale_all_dim")?,
            ..default
        })
    }
}

impl Yarn {
    /// `dims` rotated elements a head.
    pub fn read(config: &Config, base: f32, dims: usize) -> Result<Yarn> {
        Ok(Yarn::new(&YarnNumbers::read(config)?, base, dims))
    }

    pub fn new(numbers: &YarnNumbers, base: f32, dims: usize) -> Yarn {
        let factor = numbers.factor;
        let sharpened = |mscale: f32| match factor > 1.0 {
            true => 0.1 * mscale * factor.ln() + 1.0,
            false => 1.0,
        };
        // The element whose wavelength fits `turns` times into the context the model was trained on.
        let element = |turns: f32| {
            let waves = numbers.original_context / (turns * 2.0 * std::f32::consts::PI);
            dims as f32 * waves.ln() / (2.0 * base.ln())
        };
        let (mut low, mut high) = (element(numbers.beta_fast), element(numbers.beta_slow));
        if numbers.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dims as f32 - 1.0));
        let width = if high > low { high - low } else { 0.001 };
        let divisors = (0..dims / 2).map(|i| {
            let interpolated = ((i as f32 - low) / width).clamp(0.0, 1.0);
            1.0 / (interpolated / factor + 1.0 - interpolated)
        });
        Yarn {
            scaling: RopeScaling::Divisors(divisors.collect()),
            attention_factor: match (numbers.attention_factor, numbers.mscale, numbers.mscale_all) {
                (Some(stated), ..) => stated,
                (None, Some(mscale), Some(all)) => sharpened(mscale) / sharpened(all),
                _ => sharpened(1.0),
            },
            all_dimensions_factor: numbers.mscale_all.map_or(1.0, sharpened),
        }
    }
}
