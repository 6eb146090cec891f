//! Owns what a dense pre-norm decoder is: its dimensions and options, checked before anything is built from them.

use crate::error::{ModelError, Result};
use crate::features::Features;
use crate::mixture_layers::MixtureLayers;
use crate::names::Names;
use mettle_plan::{Rope, RopeScaling, RopeStyle};

/// Which projections add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    pub qkv: bool,
    pub output: bool,
    pub feed_forward: bool,
}

/// Llama, Mistral, Qwen2, Qwen3, Gemma, Phi-3 and their kin: they differ in these numbers only.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// `llama`, `qwen2` ...
    pub architecture: &'static str,
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub intermediate: usize,
    pub eps: f32,
    pub rope_base: f32,
    pub rope_scaling: RopeScaling,
    pub rope_style: RopeStyle,
    pub biases: Biases,
    /// RMS norm of each query and key head before rotation.
    pub qk_norm: bool,
    /// The head multiplies by the embedding table.
    pub tied: bool,
    pub context_length: usize,
    pub names: Names,
    /// Tensors that files of this kind may hold and the plan does not read.
    pub unread: Vec<String>,
    pub features: Features,
    /// Layers that are mixtures of experts; absent: all are dense.
    pub mixture: Option<MixtureLayers>,
}

/// Twenty times what the deepest published model has; the plan's size grows with it.
pub const MOST_LAYERS: usize = 2000;
/// Twenty times the widest published layer. It bounds every product of two dimensions below 2^50.
const LARGEST_WIDTH: usize = 1 << 20;
const LARGEST_HEAD: usize = 1 << 12;
const LARGEST_VOCAB: usize = 1 << 28;
const LONGEST_CONTEXT: usize = 1 << 31;

impl DecoderSpec {
    /// Refuses dimensions that no model has, before they become loops and allocations.
    pub fn check(self, source_name: &str) -> Result<DecoderSpec> {
        let wrong = |problem: String| {
            Err(ModelError::Dimensions {
                source_name: source_name.to_owned(),
                problem,
            })
        };
        let dimensions = [
            ("vocabulary size", self.vocab, LARGEST_VOCAB),
            ("hidden size", self.hidden, LARGEST_WIDTH),
            ("layers", self.layers, MOST_LAYERS),
            ("attention heads", self.heads, LARGEST_WIDTH),
            ("KV heads", self.kv_heads, LARGEST_WIDTH),
            ("head size", self.head_dim, LARGEST_HEAD),
            (
                "head size of layers with a window",
                self.features.window_head_dim.unwrap_or(self.head_dim),
                LARGEST_HEAD,
            ),
            (
                "layers x width of a layer's input",
                self.layers
                    .saturating_mul(self.features.per_layer_width.unwrap_or(1)),
                LARGEST_WIDTH,
            ),
            (
                "heads x head size",
                self.heads.saturating_mul(self.head_dim),
                LARGEST_WIDTH,
            ),
            ("feed-forward size", self.intermediate, LARGEST_WIDTH),
            ("context length", self.context_length, LONGEST_CONTEXT),
        ];
        for (what, value, most) in dimensions {
            if value == 0 || value > most {
                return wrong(format!("{what} is {value}; it must be 1 to {most}"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return wrong(format!(
                "{} attention heads do not divide among {} KV heads",
                self.heads, self.kv_heads
            ));
        }
        for head_dim in [Some(self.head_dim), self.features.window_head_dim] {
            if let Some(odd) = head_dim.filter(|head_dim| !head_dim.is_multiple_of(2)) {
                return wrong(format!(
                    "head size {odd} is odd; rotary embedding turns pairs"
                ));
            }
        }
        if !(self.eps > 0.0 && self.eps < 1.0) {
            return wrong(format!("norm epsilon {} is not between 0 and 1", self.eps));
        }
        let problem = self.features.problem(self.layers);
        match problem.or_else(|| self.rotary_problem()) {
            Some(problem) => wrong(problem),
            None => Ok(self),
        }
    }

    /// The head size of a layer.
    pub fn head_dim_of(&self, layer: usize) -> usize {
        let windowed = self.features.window(layer).is_some();
        let other = self.features.window_head_dim.filter(|_| windowed);
        other.unwrap_or(self.head_dim)
    }

    /// The width of a layer's feed-forward.
    pub fn intermediate_of(&self, layer: usize) -> usize {
        let shares = layer >= self.layers - self.features.kv_shared_layers;
        match self.features.wide_sharing && shares {
            true => 2 * self.intermediate,
            false => self.intermediate,
        }
    }

    /// The rotation of a layer.
    pub fn rope(&self, layer: usize) -> Rope {
        let (base, scaling) = match (&self.features.window_rope, self.features.window(layer)) {
            (Some(rope), Some(_)) => (rope.base, &rope.scaling),
            _ => (self.rope_base, &self.rope_scaling),
        };
        Rope {
            magnitude: self.features.rope_magnitude,
            ..Rope::new(
                self.rope_style,
                self.rotated(self.head_dim_of(layer)),
                base,
                scaling,
            )
        }
    }

    /// Elements of a head that are rotated.
    fn rotated(&self, head_dim: usize) -> usize {
        self.features.rotated.unwrap_or(head_dim)
    }

    /// Takes note of the longest context that a sequence may have, which LongRoPE depends on.
    pub fn limit_context(&mut self, context_length: usize) {
        if let Some(long) = &self.features.long_rope {
            self.rope_scaling = long.scaling(context_length);
        }
    }

    /// A rotary frequency that is not a finite number above 0 turns every answer into NaN.
    fn rotary_problem(&self) -> Option<String> {
        let keys = RotaryKeys::new(self);
        let positive = |what: &str, value: f32| {
            let is_wrong = !(value > 0.0 && value.is_finite());
            is_wrong.then(|| format!("{what} is {value}; it must be finite and above 0"))
        };
        let rotated = self.rotated(self.head_dim);
        let window_head = self.features.window_head_dim.unwrap_or(self.head_dim);
        let rotated_in_window = self.rotated(window_head);
        if rotated == 0 || rotated > self.head_dim || !rotated.is_multiple_of(2) {
            return Some(format!(
                "{rotated} rotated elements of heads of {}",
                self.head_dim
            ));
        }
        let of_scaling = |scaling: &RopeScaling, rotated: usize| match scaling {
            RopeScaling::None => None,
            RopeScaling::Linear { factor } => positive(&keys.factor, *factor),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                let ramp = high_freq_factor - low_freq_factor;
                positive(&keys.factor, *factor)
                    .or_else(|| positive("low_freq_factor", *low_freq_factor))
                    .or_else(|| positive("original_max_position_embeddings", *original_context))
                    .or_else(|| positive("high_freq_factor - low_freq_factor", ramp))
            }
            RopeScaling::Divisors(divisors) if divisors.len() != rotated / 2 => Some(format!(
                "{} rotary frequency divisors for heads of {}; there must be {}",
                divisors.len(),
                self.head_dim,
                rotated / 2
            )),
            RopeScaling::Divisors(divisors) => {
                let what = "a divisor of the rotary frequencies";
                divisors.iter().find_map(|d| positive(what, *d))
            }
        };
        let windowed = self.features.window_rope.as_ref();
        let long = self.features.long_rope.as_ref();
        let long = long
            .into_iter()
            .flat_map(|l| [l.scaling(0), l.scaling(usize::MAX)]);
        positive(&keys.base, self.rope_base)
            .or_else(|| of_scaling(&self.rope_scaling, rotated))
            .or_else(|| {
                windowed.and_then(|rope| positive("the base of layers with a window", rope.base))
            })
            .or_else(|| windowed.and_then(|rope| of_scaling(&rope.scaling, rotated_in_window)))
            .or_else(|| {
                long.into_iter()
                    .find_map(|scaling| of_scaling(&scaling, rotated))
            })
    }
}

/// What the config calls the rotary numbers.
struct RotaryKeys {
    base: String,
    factor: String,
}

impl RotaryKeys {
    fn new(spec: &DecoderSpec) -> RotaryKeys {
        let architecture = spec.architecture;
        match spec.names {
            Names::Hf | Names::HfGemma(_) => RotaryKeys {
                base: "rope_theta".to_owned(),
                factor: "rotary factor".to_owned(),
            },
            Names::Gguf | Names::GgufGptOss => RotaryKeys {
                base: format!("{architecture}.rope.freq_base"),
                factor: format!("{architecture}.rope.scaling.factor"),
            },
        }
    }
}
