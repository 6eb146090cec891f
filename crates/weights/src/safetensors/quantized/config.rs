//! Owns what a `config.json` says about quantization, and the refusal of what cannot be read, before any file is opened.

use super::blocks::BLOCK;
use super::settings::{Settings, shown, unsupported};
use super::stored;
use crate::error::Result;
use crate::safetensors::shards::Shards;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// How the tensors of a safetensors model are quantized.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    pub(super) scheme: Scheme,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    Mlx(MlxConfig),
    Awq(GroupSize),
    Gptq(GptqConfig),
    Fp8(Fp8Config),
    /// Experts alone.
    Mxfp4,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MlxConfig {
    default: MlxLayer,
    /// Layers that differ, by name.
    layers: HashMap<String, MlxLayer>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlxLayer {
    pub bits: usize,
    pub group: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GptqConfig {
    pub group: GroupSize,
    /// Groups were made in the order of activations, so each layer must say which input is in which.
    pub act_order: bool,
    /// What a stored zero point is short of the true one: 1 in the first version of the format.
    pub zero_offset: u8,
}

/// Inputs that share a scale; `None` where all do.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSize(Option<usize>);

#[derive(Clone, Debug, PartialEq)]
pub struct Fp8Config {
    /// Rows and columns that share a scale, where tiles do.
    pub tile: Option<[usize; 2]>,
}

impl Quantization {
    /// Reads `quantization_config`, or MLX's `quantization`; `None` where the config has neither.
    pub fn from_config(config: &Value) -> Result<Option<Quantization>> {
        let object = |key: &'static str| match config.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Settings { key, object })),
            Some(other) => Err(unsupported(format!("{key} = {other} is not an object"))),
        };
        // MLX writes the same object under both keys, and names no method in it.
        let mlx = object("quantization")?;
        let other = object("quantization_config")?;
        let other = other.filter(|s| mlx.is_none() || s.object.contains_key("quant_method"));
        let scheme = match (mlx, other) {
            (None, None) => return Ok(None),
            (_, Some(settings)) => match settings.text("quant_method")? {
                Some("awq") => settings.awq()?,
                Some("gptq") => settings.gptq()?,
                Some("fp8") => settings.fp8()?,
                Some("mxfp4") => Scheme::Mxfp4,
                Some("compressed-tensors") => settings.compressed_tensors()?,
                Some(method) => return Err(settings.refuse_method(method)),
                None => {
                    return Err(unsupported(format!(
                        "{}: quant_method is missing",
                        settings.key
                    )));
                }
            },
            (Some(settings), None) => settings.mlx()?,
        };
        Ok(Some(Quantization { scheme }))
    }
}

impl MlxConfig {
    pub fn layer(&self, name: &str) -> MlxLayer {
        self.layers.get(name).copied().unwrap_or(self.default)
    }
}

impl GroupSize {
    /// The size for a matrix of so many inputs, in whole blocks.
    pub fn of(&self, shards: &Shards, index: usize, inputs: usize) -> Result<usize> {
        let group = self.0.unwrap_or(inputs);
        match inputs.is_multiple_of(group) && group.is_multiple_of(BLOCK) {
            true => Ok(group),
            false => {
                let problem = format!(
                    "has {inputs} inputs in groups of {group}; both must be whole blocks of {BLOCK}"
                );
                Err(stored::malformed(shards, index, problem))
            }
        }
    }
}

impl<'a> Settings<'a> {
    fn mlx(&self) -> Result<Scheme> {
        let default = self.mlx_layer(self.object, None)?;
        let mut layers = HashMap::new();
        for (name, value) in self.object {
            match value {
                Value::Object(own) => {
                    layers.insert(name.clone(), self.mlx_layer(own, Some(name))?);
                }
                // `false` says that the layer is not quantized, and its tensor says so too.
                Value::Bool(_) => {}
                _ if ["bits", "group_size", "mode"].contains(&name.as_str()) => {}
                other => return Err(self.refuse(&format!("{name} = {other}"))),
            }
        }
        Ok(Scheme::Mlx(MlxConfig { default, layers }))
    }

    fn mlx_layer(&self, object: &'a Map<String, Value>, layer: Option<&str>) -> Result<MlxLayer> {
        let settings = Settings { object, ..*self };
        let of_layer = layer.map_or(String::new(), |l| format!(" of {l}"));
        let mode = settings.text("mode")?.unwrap_or("affine");
        let (bits, group) = (settings.number("bits")?, settings.number("group_size")?);
        match (mode, bits, group) {
            ("affine", Some(bits @ (4 | 8)), Some(group @ (32 | 64 | 128))) => Ok(MlxLayer {
                bits: bits as usize,
                group: group as usize,
            }),
            _ => Err(self.refuse(&format!(
                "MLX {mode} with {} bits in groups of {}{of_layer}",
                shown(bits),
                shown(group)
            ))),
        }
    }

    fn awq(&self) -> Result<Scheme> {
        let bits = match self.number("bits")? {
            None => self.number("w_bit")?,
            bits => bits,
        };
        let version = self.text("version")?.unwrap_or("gemm");
        let zero_point = self.flag("zero_point")?.unwrap_or(true);
        if bits != Some(4) || !version.eq_ignore_ascii_case("gemm") || !zero_point {
            let without = if zero_point {
                ""
            } else {
                " without zero points"
            };
            return Err(self.refuse(&format!(
                "awq ({version}) with {} bits{without}",
                shown(bits)
            )));
        }
        let key = match self.object.contains_key("q_group_size") {
            true => "q_group_size",
            false => "group_size",
        };
        Ok(Scheme::Awq(self.group_size(key)?))
    }

    fn gptq(&self) -> Result<Scheme> {
        let bits = self.number("bits")?;
        let format = self.text("checkpoint_format")?.unwrap_or("gptq");
        let zero_offset = match format {
            "gptq" => Some(1),
            "gptq_v2" => Some(0),
            _ => None,
        };
        let marlin = self.flag("is_marlin_format")?.unwrap_or(false);
        let own_layers =
            matches!(self.object.get("dynamic"), Some(Value::Object(own)) if !own.is_empty());
        match zero_offset {
            Some(zero_offset) if bits == Some(4) && !marlin && !own_layers => {
                Ok(Scheme::Gptq(GptqConfig {
                    group: self.group_size("group_size")?,
                    act_order: self.flag("desc_act")?.unwrap_or(false),
                    zero_offset,
                }))
            }
            _ => {
                let own = if own_layers {
                    " and settings per layer"
                } else {
                    ""
                };
                let format = if marlin { "marlin" } else { format };
                Err(self.refuse(&format!(
                    "gptq (format {format}) with {} bits{own}",
                    shown(bits)
                )))
            }
        }
    }

    fn fp8(&self) -> Result<Scheme> {
        let format = self.text("fmt")?.unwrap_or("e4m3");
        if format != "e4m3" {
            return Err(self.refuse(&format!("fp8 ({format})")));
        }
        let tile = match self.object.get("weight_block_size") {
            None | Some(Value::Null) => None,
            Some(value) => Some(self.tile(value)?),
        };
        Ok(Scheme::Fp8(Fp8Config { tile }))
    }

    /// Of its many formats, the one that is FP8 under another name.
    fn compressed_tensors(&self) -> Result<Scheme> {
        let format = self.text("format")?.unwrap_or("unknown");
        let groups = self.object.get("config_groups").and_then(Value::as_object);
        let weights: Vec<&Value> = groups.map_or_else(Vec::new, |groups| {
            groups
                .values()
                .filter_map(|group| group.get("weights"))
                .collect()
        });
        let bits = weights.iter().find_map(|w| w.get("num_bits")?.as_i64());
        let is_fp8 = |w: &&Value| {
            w.get("num_bits").and_then(Value::as_i64) == Some(8)
                && w.get("type").and_then(Value::as_str) == Some("float")
        };
        if format != "float-quantized" || weights.is_empty() || !weights.iter().all(is_fp8) {
            let what = format!("compressed-tensors ({format}) with {} bits", shown(bits));
            return Err(self.refuse(&what));
        }
        let tile = weights
            .iter()
            .find_map(|w| w.get("block_structure").filter(|t| !t.is_null()));
        let tile = tile.map(|tile| self.tile(tile)).transpose()?;
        Ok(Scheme::Fp8(Fp8Config { tile }))
    }

    fn tile(&self, value: &Value) -> Result<[usize; 2]> {
        let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        let sizes: Option<Vec<usize>> = value.as_array().and_then(|a| a.iter().map(size).collect());
        match sizes.as_deref() {
            Some(&[high, wide]) if high > 0 && wide > 0 && wide.is_multiple_of(BLOCK) => {
                Ok([high, wide])
            }
            _ => Err(self.refuse(&format!("fp8 with scales per {value} tile"))),
        }
    }

    fn group_size(&self, key: &str) -> Result<GroupSize> {
        match self.number(key)? {
            Some(-1) => Ok(GroupSize(None)),
            Some(size) if size > 0 && (size as usize).is_multiple_of(BLOCK) => {
                Ok(GroupSize(Some(size as usize)))
            }
            other => {
                let method = self.text("quant_method")?.unwrap_or_default();
                Err(self.refuse(&format!("{method} in groups of {}", shown(other))))
            }
        }
    }
}
