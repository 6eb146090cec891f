//! Owns what some families of decoders do beyond the plain one: windows, softcaps, norms behind, other rotations.

use mettle_plan::{Activation, RopeScaling};

#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    pub activation: Activation,
    /// Added to every norm's weight (Gemma stores weight - 1).
    pub norm_offset: f32,
    /// What a layer's half adds to the residual stream is normalized first (Gemma).
    pub post_norms: bool,
    pub embedding_scale: f32,
    /// Multiplies attention scores; absent: 1 / sqrt(head size).
    pub attention_scale: Option<f32>,
    pub attention_softcap: Option<f32>,
    pub final_softcap: Option<f32>,
    /// Every head has a logit that takes part in the softmax and adds nothing (gpt-oss).
    pub sinks: bool,
    /// How far each layer sees; absent: the whole context. Empty: all layers do.
    pub windows: Vec<Option<usize>>,
    /// The rotation of layers with a window, where it is another one.
    pub window_rope: Option<WindowRope>,
    /// Elements of each head that are rotated; absent: all.
    pub rotated: Option<usize>,
    /// Multiplies what is rotated.
    pub rope_magnitude: f32,
    pub long_rope: Option<LongRope>,
    /// One tensor holds the query, key and value projections, one the gate and up projections (Phi-3).
    pub fused: bool,
    /// So many layers at the end read the cache of the last layer of their kind before them.
    pub kv_shared_layers: usize,
    /// Feed-forwards of those layers are twice as wide (Gemma 4).
    pub wide_sharing: bool,
    /// The head size of layers with a window, where it is another one (Gemma 4).
    pub window_head_dim: Option<usize>,
    /// Values are normalized too, without a weight (Gemma 4).
    pub value_norm: bool,
    /// The residual stream is multiplied by a number at the end of each layer (Gemma 4).
    pub layer_scales: bool,
    /// Every layer adds what a second embedding of the token says to it, so wide (Gemma 4).
    pub per_layer_width: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WindowRope {
    pub base: f32,
    pub scaling: RopeScaling,
}

/// LongRoPE: one list of divisors up to the context the model was trained on, one beyond. Which one holds is decided by
/// the longest context that a sequence may have, once for all sequences: keys in the cache must not change.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    pub original_context: usize,
    pub short: Vec<f32>,
    pub long: Vec<f32>,
    /// Multiplies what is rotated, with either list.
    pub magnitude: f32,
}

impl LongRope {
    pub fn scaling(&self, context_length: usize) -> RopeScaling {
        RopeScaling::Divisors(match context_length > self.original_context {
            true => self.long.clone(),
            false => self.short.clone(),
        })
    }

    /// Attention is sharpened with the ratio of the two contexts.
    pub fn magnitude_of(factor: f32, original_context: usize) -> f32 {
        match factor > 1.0 {
            true => (1.0 + factor.ln() / (original_context as f32).ln()).sqrt(),
            false => 1.0,
        }
    }
}

impl Default for Features {
    fn default() -> Features {
        Features {
            activation: Activation::Silu,
            norm_offset: 0.0,
            post_norms: false,
            embedding_scale: 1.0,
            attention_scale: None,
            attention_softcap: None,
            final_softcap: None,
            sinks: false,
            windows: Vec::new(),
            window_rope: None,
            rotated: None,
            rope_magnitude: 1.0,
            long_rope: None,
            fused: false,
            kv_shared_layers: 0,
            wide_sharing: false,
            window_head_dim: None,
            value_norm: false,
            layer_scales: false,
            per_layer_width: None,
        }
    }
}

impl Features {
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.windows.get(layer).copied().flatten()
    }

    /// The layer whose cache `layer` of `layers` reads: its own, or that of the last layer before the sharing ones that
    /// sees equally far. Absent where there is none.
    pub fn cache_of(&self, layer: usize, layers: usize) -> Option<usize> {
        let own = layers - self.kv_shared_layers;
        match layer < own {
            true => Some(layer),
            false => (0..own).rfind(|l| self.window(*l) == self.window(layer)),
        }
    }

    /// What no model has, in words.
    pub fn problem(&self, layers: usize) -> Option<String> {
        let listed = self.windows.len();
        if listed != 0 && listed != layers {
            return Some(format!("{listed} attention windows for {layers} layers"));
        }
        if self.windows.contains(&Some(0)) {
            return Some("an attention window of 0 tokens".into());
        }
        if self.kv_shared_layers >= layers && self.kv_shared_layers > 0 {
            let shared = self.kv_shared_layers;
            return Some(format!("{shared} of {layers} layers share another's cache"));
        }
        if let Some(layer) = (0..layers).find(|l| self.cache_of(*l, layers).is_none()) {
            return Some(format!(
                "layer {layer} shares a cache, but no layer before sees as far"
            ));
        }
        let positive = |what: &str, value: Option<f32>| {
            let wrong = value.filter(|v| !(*v > 0.0 && v.is_finite()));
            wrong.map(|v| format!("{what} is {v}; it must be finite and above 0"))
        };
        positive("the attention scale", self.attention_scale)
            .or_else(|| positive("the attention softcap", self.attention_softcap))
            .or_else(|| positive("the softcap of logits", self.final_softcap))
            .or_else(|| positive("the embedding scale", Some(self.embedding_scale)))
            .or_else(|| positive("the factor of rotated elements", Some(self.rope_magnitude)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_layers_read_the_last_layer_of_their_kind() {
        let (near, far) = (Some(8), None);
        let features = Features {
            windows: vec![near, near, far, near, near, far],
            kv_shared_layers: 3,
            ..Features::default()
        };
        let caches = (0..6).map(|layer| features.cache_of(layer, 6).unwrap());
        assert_eq!(caches.collect::<Vec<_>>(), [0, 1, 2, 1, 1, 2]);
        assert_eq!(features.problem(6), None);
        let alone = Features {
            windows: vec![near, near, near, near, near, far],
            ..features
        };
        assert_eq!(
            alone.problem(6).as_deref(),
            Some("layer 5 shares a cache, but no layer before sees as far")
        );
    }

    #[test]
    fn long_divisors_hold_beyond_the_original_context() {
        let rope = LongRope {
            original_context: 64,
            short: vec![1.0],
            long: vec![2.0],
            magnitude: 1.0,
        };
        assert_eq!(rope.scaling(64), RopeScaling::Divisors(vec![1.0]));
        assert_eq!(rope.scaling(65), RopeScaling::Divisors(vec![2.0]));
        // Phi-3-mini-128k.
        let magnitude = LongRope::magnitude_of(32.0, 4096);
        assert!((magnitude - 1.190_238_1).abs() < 1e-6, "{magnitude}");
        assert_eq!(LongRope::magnitude_of(1.0, 4096), 1.0);
    }
}
