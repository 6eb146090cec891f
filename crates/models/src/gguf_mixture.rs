//! Owns what a GGUF file says of its experts: sizes in `ARCH.expert_*`, and by its tensors how they are stored.

use crate::error::Result;
use crate::gguf_config::GgufConfig;
use crate::mixture::Mixture;
use crate::mixture_layers::{MixtureLayers, SharedExpert, StoredExperts};
use mettle_plan::{Activation, RouteScore};

/// What files do not say: it follows from the architecture.
#[derive(Clone, Copy, Debug)]
pub struct GgufMixture {
    pub score: RouteScore,
    pub normalize: bool,
    pub has_shared: bool,
    pub biases: bool,
    pub activation: Activation,
}

impl Default for GgufMixture {
    fn default() -> GgufMixture {
        GgufMixture {
            score: RouteScore::Softmax,
            normalize: true,
            has_shared: false,
            biases: false,
            activation: Activation::Silu,
        }
    }
}

impl GgufMixture {
    /// Absent where the file has no experts.
    pub fn read(self, config: &GgufConfig) -> Result<Option<MixtureLayers>> {
        let experts = config.size_or_none("expert_count")?.unwrap_or(0);
        if experts == 0 {
            config.must_be("expert_used_count", 0)?;
            return Ok(None);
        }
        // Mixtral's experts are as wide as its feed-forward is said to be.
        let width = match config.size_or_none("expert_feed_forward_length")? {
            Some(width) => width,
            None => config.size("feed_forward_length")?,
        };
        let mixture = Mixture {
            score: self.score,
            normalize: self.normalize,
            activation: self.activation,
            ..Mixture::plain(experts, config.size("expert_used_count")?, width)
        };
        let shape_of = |name: &str| {
            let index = config.tensors.find(name)?;
            Some(config.tensors.tensors()[index].shape.as_slice())
        };
        let stored = match shape_of("blk.0.ffn_gate_up_exps.weight") {
            Some(_) => StoredExperts::GgufFused,
            None => StoredExperts::Gguf,
        };
        let shared = match self.has_shared {
            false => None,
            true => Some(SharedExpert {
                width: config.size("expert_shared_feed_forward_length")?,
                // Converters have written both.
                gate_is_vector: shape_of("blk.0.ffn_gate_inp_shexp.weight")
                    .is_some_and(|shape| shape.len() == 1),
            }),
        };
        let mixture = MixtureLayers {
            shared,
            biases: self.biases,
            ..MixtureLayers::new(mixture, stored)
        };
        mixture.check("GGUF metadata").map(Some)
    }
}
