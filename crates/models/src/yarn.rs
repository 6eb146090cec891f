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

impl Yarn {
    /// `dims` rotated elements a head.
    pub fn read(config: &Config, base: f32, dims: usize) -> Result<Yarn> {
        config.must_be("type", "yarn")?;
        config.must_be("rope_type", "yarn")?;
        let factor = config.positive("factor")?;
        // The defaults of transformers, and of the paper.
        let beta_fast = config.float_or_none("beta_fast")?.unwrap_or(32.0);
        let beta_slow = config.float_or_none("beta_slow")?.unwrap_or(1.0);
        let truncate = config.flag_or_none("truncate")?.unwrap_or(true);
        let original = config.positive("original_max_position_embeddings")?;
        let mscale = config.float_or_none("mscale")?.filter(|m| *m != 0.0);
        let mscale_all = config
            .float_or_none("mscale_all_dim")?
            .filter(|m| *m != 0.0);
        let sharpened = |mscale: f32| match factor > 1.0 {
            true => 0.1 * mscale * factor.ln() + 1.0,
            false => 1.0,
        };
        // The element whose wavelength fits `turns` times into the context the model was trained on.
        let element = |turns: f32| {
            dims as f32 * (original / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * base.ln())
        };
        let (mut low, mut high) = (element(beta_fast), element(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dims as f32 - 1.0));
        let width = if high > low { high - low } else { 0.001 };
        let divisors = (0..dims / 2).map(|i| {
            let interpolated = ((i as f32 - low) / width).clamp(0.0, 1.0);
            1.0 / (interpolated / factor + 1.0 - interpolated)
        });
        Ok(Yarn {
            scaling: RopeScaling::Divisors(divisors.collect()),
            attention_factor: match (mscale, mscale_all) {
                (Some(mscale), Some(all)) => sharpened(mscale) / sharpened(all),
                _ => sharpened(1.0),
            },
            all_dimensions_factor: mscale_all.map_or(1.0, sharpened),
        })
    }
}
