//! Owns the two ways in which `config.json` writes rotary embedding: transformers 4 (`rope_theta` + `rope_scaling`)
//! and transformers 5 (`rope_parameters`).

use crate::config::Config;
use crate::error::Result;
use mettle_plan::RopeScaling;

/// transformers' default where a config names no base (Llama 2).
const DEFAULT_BASE: f32 = 10_000.0;

#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    pub base: f32,
    pub scaling: RopeScaling,
}

impl RopeConfig {
    pub fn from_hf(config: &Config) -> Result<RopeConfig> {
        let outer_base = config.float_or_none("rope_theta")?;
        let parameters = config.object_or_none("rope_parameters")?;
        let scaling = config.object_or_none("rope_scaling")?;
        match (parameters, scaling) {
            (Some(parameters), None) => {
                let base = parameters.float_or_none("rope_theta")?.or(outer_base);
                let rope = RopeConfig {
                    base: base.ok_or_else(|| parameters.missing("rope_theta"))?,
                    scaling: scaling_of(&parameters)?,
                };
                if outer_base.is_some_and(|outer| outer != rope.base) {
                    let inside = format!("rope_parameters says {}", rope.base);
                    return Err(config.unsupported("rope_theta", inside));
                }
                parameters.finish()?;
                Ok(rope)
            }
            (None, Some(scaling)) => {
                let rope = RopeConfig {
                    base: outer_base.unwrap_or(DEFAULT_BASE),
                    scaling: scaling_of(&scaling)?,
                };
                scaling.finish()?;
                Ok(rope)
            }
            (None, None) => Ok(RopeConfig {
                base: outer_base.unwrap_or(DEFAULT_BASE),
                scaling: RopeScaling::None,
            }),
            (Some(_), Some(_)) => {
                let one = "rope_parameters is there too; only one of them can be followed";
                Err(config.unsupported("rope_scaling", one))
            }
        }
    }
}

fn scaling_of(config: &Config) -> Result<RopeScaling> {
    // `type` is the older spelling; files of some years carry both.
    let older = config.text_or_none("type")?;
    let kind = config.text_or_none("rope_type")?.or(older);
    config.must_be("partial_rotary_factor", 1.0)?;
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
            Err(config.unsupported(key, "default, linear and llama3 are"))
        }
    }
}
