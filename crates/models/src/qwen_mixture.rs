//! Owns what the configs of Qwen2-MoE and Qwen3-MoE say of their experts in the same words.

use crate::config::Config;
use crate::error::Result;
use crate::mixture::Mixture;
use crate::mixture_layers::{MixtureLayers, StoredExperts};

/// Which layers are mixtures: every `decoder_sparse_step`-th, but not those in `mlp_only_layers`.
pub fn read(config: &Config) -> Result<MixtureLayers> {
    // transformers 5 writes Qwen3-MoE's under the name that other architectures have.
    let newer = config.size_or_none("num_local_experts")?;
    let experts = match newer {
        Some(experts) => {
            config.must_be("num_experts", experts)?;
            experts
        }
        None => config.size("num_experts")?,
    };
    let normalize = config.flag_or_none("norm_topk_prob")?;
    let mixture = Mixture {
        normalize: normalize.ok_or_else(|| config.missing("norm_topk_prob"))?,
        ..Mixture::plain(
            experts,
            config.count("num_experts_per_tok")?,
            config.width("moe_intermediate_size")?,
        )
    };
    let layers = config.layers("num_hidden_layers")?;
    let step = config.size_or_none("decoder_sparse_step")?.unwrap_or(1);
    if step == 0 {
        return Err(config.unsupported("decoder_sparse_step", "1 or more is"));
    }
    let dense = config.sizes_or_none("mlp_only_layers")?.unwrap_or_default();
    mixture.check_stored_one_by_one(config, layers)?;
    let mixture = MixtureLayers {
        layers: (0..layers)
            .map(|layer| !dense.contains(&layer) && (layer + 1) % step == 0)
            .collect(),
        ..MixtureLayers::new(mixture, StoredExperts::OneByOne)
    };
    mixture.check(config.name())
}
