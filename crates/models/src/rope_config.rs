//! Owns the two ways in which `config.json` writes rotary embedding: transformers 4 (`rope_theta` + `rope_scaling`)
//! and transformers 5 (`rope_parameters`).

use crate::config::Config;
use crate::error::Result;
use crate::features::LongRope;
use mettle_plan::RopeScaling;

/// transformers' default where a config names no base (Llama 2).
const DEFAULT_BASE: f32 = 10_000.0;

#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    pub base: f32,
    pub scaling: RopeScaling,
    /// The share of each head that is rotated.
    pub partial: f32,
    /// In place of `scaling`.
    pub long: Option<LongRope>,
}

impl RopeConfig {
    pub fn from_hf(config: &Config) -> Result<RopeConfig> {
        let outer_base = config.float_or_none("rope_theta")?;
        let parameters = config.object_or_none("rope_parameters")?;
        let scaling = config.object_or_none("rope_scaling")?;
        match (parameters, scaling) {
            (Some(parameters), None) => {
                let base = parameters.float_or_none("rope_theta")?.or(outer_base);
                let base = base.ok_or_else(|| parameters.missing("rope_theta"))?;
                let rope = RopeConfig::read(config, &parameters, base)?;
                if outer_base.is_some_and(|outer| outer != rope.base) {
                    let inside = format!("rope_parameters says {}", rope.base);
                    return Err(config.unsupported("rope_theta", inside));
                }
                Ok(rope)
            }
            (None, Some(scaling)) => {
                RopeConfig::read(config, &scaling, outer_base.unwrap_or(DEFAULT_BASE))
            }
            (None, None) => Ok(RopeConfig {
                base: outer_base.unwrap_or(DEFAULT_BASE),
                scaling: RopeScaling::None,
                partial: 1.0,
                long: None,
            }),
            (Some(_), Some(_)) => {
                let one = "rope_parameters is there too; only one of them can be followed";
                Err(config.unsupported("rope_scaling", one))
            }
        }
    }

    /// All that one object says of a rotation.
    pub fn read(outer: &Config, config: &Config, base: f32) -> Result<RopeConfig> {
        let partial = config.float_or_none("partial_rotary_factor")?;
        let mut rope = RopeConfig {
            base,
            scaling: RopeScaling::None,
            partial: partial.unwrap_or(1.0),
            long: None,
        };
        // `type` is the older spelling; files of some years carry both.
        let older = config.text_or_none("type")?;
        match config.text_or_none("rope_type")?.or(older) {
            Some("longrope" | "su") => rope.long = Some(long_rope(outer, config)?),
            kind => rope.scaling = scaling_of(config, kind)?,
        }
        config.finish()?;
        Ok(rope)
    }
}

fn scaling_of(config: &Config, kind: Option<&str>) -> Result<RopeScaling> {
    match kind {
        None => Err(config.missing("rope_type")),
        Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: config.float("factor")?,
        }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: config.float("factor")?,
            low_freq_factor: config.float("low_freq_factor")?,
            high_freq_factor: config.float("high_freq_factor")?,
            original_context: config.float("original_max_position_embeddings")?,
        }),
        Some(_) => {
            let key = match config.get("rope_type") {
                Some(_) => "rope_type",
                None => "type",
            };
            Err(config.unsupported(key, "default, linear, llama3 and longrope are"))
        }
    }
}

/// Older configs keep the context that the model was trained on beside the rotation, newer ones inside it too.
fn long_rope(outer: &Config, config: &Config) -> Result<LongRope> {
    const ORIGINAL: &str = "original_max_position_embeddings";
    let inside = config.size_or_none(ORIGINAL)?;
    let original_context = match inside.or(outer.size_or_none(ORIGINAL)?) {
        Some(original) if original > 1 => original,
        Some(few) => {
            return Err(config.mismatch(format!("{ORIGINAL} is {few}; it must be above 1")));
        }
        None => return Err(outer.missing(ORIGINAL)),
    };
    let longest = outer.size("max_position_embeddings")?;
    let factor = config.float_or_none("factor")?;
    let factor = factor.unwrap_or(longest as f32 / original_context as f32);
    let magnitude = config.float_or_none("attention_factor")?;
    Ok(LongRope {
        original_context,
        short: config.floats("short_factor")?,
        long: config.floats("long_factor")?,
        magnitude: magnitude.unwrap_or_else(|| LongRope::magnitude_of(factor, original_context)),
    })
}
