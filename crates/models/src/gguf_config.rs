//! Owns the reading of a GGUF file's `ARCH.*` keys: every one must be read, as with `config.json`.

use crate::decoder::{Biases, DecoderSpec};
use crate::error::{ModelError, Result};
use crate::features::{Features, LongRope};
use crate::gguf_mixture::GgufMixture;
use crate::mixture_layers::MixtureLayers;
use crate::names::{LayerTensor, Names};
use crate::windows;
use mettle_plan::{RopeScaling, RopeStyle};
use mettle_tensor::{TensorSource, blocks};
use mettle_weights::Metadata;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// llama.cpp's default where a file names no base.
const DEFAULT_BASE: f32 = 10_000.0;
/// Divisors of the rotary frequencies, as converters store Llama 3's scaling.
const ROPE_DIVISORS: &str = "rope_freqs.weight";
/// LongRoPE's, as converters store Phi-3's.
const SHORT_DIVISORS: &str = "rope_factors_short.weight";
const LONG_DIVISORS: &str = "rope_factors_long.weight";
const SOURCE: &str = "GGUF metadata";

pub struct GgufConfig<'a> {
    architecture: &'static str,
    metadata: &'a Metadata,
    pub tensors: &'a dyn TensorSource,
    read: RefCell<BTreeSet<String>>,
    mixture: Option<MixtureLayers>,
    /// Where an architecture has read it by itself.
    pub rope_scaling: Option<RopeScaling>,
}

impl<'a> GgufConfig<'a> {
    pub fn new(
        architecture: &'static str,
        metadata: &'a Metadata,
        tensors: &'a dyn TensorSource,
    ) -> GgufConfig<'a> {
        GgufConfig {
            architecture,
            metadata,
            tensors,
            read: RefCell::default(),
            mixture: None,
            rope_scaling: None,
        }
    }

    /// For architectures that may have experts.
    pub fn with_experts(mut self, kind: GgufMixture) -> Result<GgufConfig<'a>> {
        self.mixture = kind.read(&self)?;
        Ok(self)
    }

    fn key(&self, name: &str) -> String {
        let key = format!("{}.{name}", self.architecture);
        self.read.borrow_mut().insert(key.clone());
        key
    }

    pub fn size_or_none(&self, name: &str) -> Result<Option<usize>> {
        let value = self.metadata.get_u64(&self.key(name))?;
        Ok(value.map(|v| usize::try_from(v).unwrap_or(usize::MAX)))
    }

    pub fn size(&self, name: &str) -> Result<usize> {
        self.size_or_none(name)?.ok_or_else(|| self.missing(name))
    }

    pub fn float(&self, name: &str) -> Result<f32> {
        self.float_or_none(name)?.ok_or_else(|| self.missing(name))
    }

    /// A text that can be nothing else.
    pub fn must_say(&self, name: &str, expected: &str) -> Result<()> {
        match self.text_or_none(name)? {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(self.unsupported(name, found, format!("only {expected} is"))),
            None => Err(self.missing(name)),
        }
    }

    pub fn float_or_none(&self, name: &str) -> Result<Option<f32>> {
        Ok(self.metadata.get_f32(&self.key(name))?)
    }

    fn text_or_none(&self, name: &str) -> Result<Option<&'a str>> {
        Ok(self.metadata.get_str(&self.key(name))?)
    }

    /// A key that was read elsewhere.
    pub fn ignore(&self, name: &str) {
        self.key(name);
    }

    pub fn must_be(&self, name: &str, expected: usize) -> Result<()> {
        match self.size_or_none(name)? {
            Some(found) if found != expected => {
                Err(self.unsupported(name, found, format!("only {expected} is")))
            }
            _ => Ok(()),
        }
    }

    pub fn unsupported(
        &self,
        name: &str,
        value: impl ToString,
        supported: impl Into<String>,
    ) -> ModelError {
        ModelError::Unsupported {
            source_name: SOURCE.into(),
            key: self.key(name),
            value: value.to_string(),
            supported: supported.into(),
        }
    }

    fn missing(&self, name: &str) -> ModelError {
        ModelError::MissingKey {
            source_name: SOURCE.into(),
            key: self.key(name),
        }
    }

    /// Refuses keys of the architecture that were not read.
    pub fn finish(&self) -> Result<()> {
        let read = self.read.borrow();
        let prefix = format!("{}.", self.architecture);
        let unknown = |key: &&str| key.starts_with(&prefix) && !read.contains(*key);
        match self.metadata.keys().find(unknown) {
            None => Ok(()),
            Some(key) => Err(ModelError::UnknownKey {
                source_name: SOURCE.into(),
                key: key.to_owned(),
                value: value_text(self.metadata, key),
            }),
        }
    }

    /// Whether layer 0 has this projection's bias; all layers must then.
    pub fn has_bias(&self, tensor: LayerTensor) -> bool {
        let name = format!("{}.bias", Names::Gguf.layer(0, tensor));
        self.tensors.find(&name).is_some()
    }

    /// The decoder that the file describes. Absent keys mean what they mean to llama.cpp: as many KV heads as heads,
    /// heads that share the hidden size among them, a rotary base of 10000.
    pub fn decoder(
        mut self,
        rope_style: RopeStyle,
        biases: Biases,
        qk_norm: bool,
        features: Features,
    ) -> Result<DecoderSpec> {
        if self.mixture.is_none() {
            self.must_be("expert_count", 0)?;
            self.must_be("expert_used_count", 0)?;
        }
        let mixture = self.mixture.take();
        let hidden = self.size("embedding_length")?;
        let heads = self.size("attention.head_count")?;
        let key_length = self.size_or_none("attention.key_length")?;
        let head_dim = key_length.unwrap_or(hidden / heads.max(1));
        let context_length = self.size("context_length")?;
        self.must_be("attention.value_length", head_dim)?;
        let rotated = self.size_or_none("rope.dimension_count")?;
        // How the converter's input was laid out; the tensors in the file are not.
        self.text_or_none("tensor_data_layout")?;
        let mut unread = Vec::new();
        let long_rope = self.long_rope(context_length, &mut unread)?;
        let rope_scaling = match &long_rope {
            Some(long) => long.scaling(context_length),
            None => match self.rope_scaling.take() {
                Some(scaling) => scaling,
                None => self.rope_scaling(&mut unread)?,
            },
        };
        let spec = DecoderSpec {
            architecture: self.architecture,
            vocab: self.vocab()?,
            hidden,
            layers: self.size("block_count")?,
            heads,
            kv_heads: self
                .size_or_none("attention.head_count_kv")?
                .unwrap_or(heads),
            head_dim,
            intermediate: match self.widths()? {
                Some((first, _)) => first,
                None => self.size("feed_forward_length")?,
            },
            eps: self
                .float_or_none("attention.layer_norm_rms_epsilon")?
                .ok_or_else(|| self.missing("attention.layer_norm_rms_epsilon"))?,
            rope_base: self
                .float_or_none("rope.freq_base")?
                .unwrap_or(DEFAULT_BASE),
            rope_scaling,
            rope_style,
            biases,
            qk_norm,
            tied: self.tensors.find(Names::Gguf.head()).is_none(),
            context_length,
            names: Names::Gguf,
            unread,
            features: Features {
                rotated: rotated.filter(|rotated| *rotated != head_dim),
                rope_magnitude: long_rope.as_ref().map_or(1.0, |long| long.magnitude),
                long_rope,
                ..features
            },
            mixture,
        };
        self.finish()?;
        spec.check(SOURCE)
    }

    /// The rows of the embedding table; a file that also states the number must agree.
    pub fn vocab(&self) -> Result<usize> {
        let stated = self.size_or_none("vocab_size")?;
        let name = Names::Gguf.embedding();
        let index = self.tensors.find(&name);
        let shape = index.map(|i| self.tensors.tensors()[i].shape.as_slice());
        match (shape, stated) {
            (Some(&[rows, _]), Some(stated)) if rows != stated => Err(ModelError::Dimensions {
                source_name: SOURCE.into(),
                problem: format!("{name} has {rows} rows, the vocabulary size is {stated}"),
            }),
            (Some(&[rows, _]), _) => Ok(rows),
            (_, Some(stated)) => Ok(stated),
            (_, None) => Err(self.missing("vocab_size")),
        }
    }

    fn rope_scaling(&self, unread: &mut Vec<String>) -> Result<RopeScaling> {
        // They speak of how a model was trained, or belong to the kinds refused below.
        self.size_or_none("rope.scaling.original_context_length")?;
        self.metadata
            .get_bool(&self.key("rope.scaling.finetuned"))?;
        let factor = self.float_or_none("rope.scaling.factor")?;
        let kind = self.text_or_none("rope.scaling.type")?;
        let divisors = self.divisors(ROPE_DIVISORS)?;
        match (kind, divisors) {
            (None | Some("none"), None) => Ok(RopeScaling::None),
            (None | Some("none"), Some(divisors)) => {
                unread.push(ROPE_DIVISORS.to_owned());
                Ok(RopeScaling::Divisors(divisors))
            }
            (Some("linear"), None) => {
                let factor = factor.ok_or_else(|| self.missing("rope.scaling.factor"))?;
                Ok(RopeScaling::Linear { factor })
            }
            (Some(kind), Some(_)) => Err(self.unsupported(
                "rope.scaling.type",
                kind,
                format!("not together with {ROPE_DIVISORS}"),
            )),
            (Some(kind), None) => {
                Err(self.unsupported("rope.scaling.type", kind, "none and linear are"))
            }
        }
    }

    /// A list of true and false.
    pub fn flags(&self, name: &str) -> Result<&'a [bool]> {
        let found = self.metadata.get_bools(&self.key(name))?;
        found.ok_or_else(|| self.missing(name))
    }

    /// The first and the last layer's feed-forward, where a file lists them all.
    pub fn widths(&self) -> Result<Option<(usize, usize)>> {
        let key = self.key("feed_forward_length");
        if self.metadata.get_u64(&key).is_ok() {
            return Ok(None);
        }
        let size = |width: &i64| usize::try_from(*width).unwrap_or(0);
        let widths = self.metadata.get_i64s(&key)?.unwrap_or_default();
        Ok(match &widths[..] {
            [first, .., last] => Some((size(first), size(last))),
            _ => None,
        })
    }

    /// Every layer's window where one in so many sees everything; a file may say which one.
    pub fn periodic_windows(
        &self,
        layers: usize,
        window: usize,
        period: usize,
    ) -> Result<Vec<Option<usize>>> {
        let stated = self.size_or_none("attention.sliding_window_pattern")?;
        let period = stated.unwrap_or(period).max(1);
        Ok(windows::last_of_each(layers, window, period))
    }

    fn long_rope(&self, context: usize, unread: &mut Vec<String>) -> Result<Option<LongRope>> {
        let (short, long) = (
            self.divisors(SHORT_DIVISORS)?,
            self.divisors(LONG_DIVISORS)?,
        );
        let (Some(short), Some(long)) = (short, long) else {
            return Ok(None);
        };
        unread.extend([SHORT_DIVISORS.to_owned(), LONG_DIVISORS.to_owned()]);
        const ORIGINAL: &str = "rope.scaling.original_context_length";
        let original_context = match self.size(ORIGINAL)? {
            few @ (0 | 1) => return Err(self.unsupported(ORIGINAL, few, "2 and more are")),
            original => original,
        };
        if let Some(kind) = self.text_or_none("rope.scaling.type")?
            && kind != "longrope"
        {
            let only = format!("with {LONG_DIVISORS} only longrope is");
            return Err(self.unsupported("rope.scaling.type", kind, only));
        }
        let factor = context as f32 / original_context as f32;
        let magnitude = self.float_or_none("rope.scaling.attn_factor")?;
        Ok(Some(LongRope {
            original_context,
            short,
            long,
            magnitude: magnitude
                .unwrap_or_else(|| LongRope::magnitude_of(factor, original_context)),
        }))
    }

    fn divisors(&self, name: &'static str) -> Result<Option<Vec<f32>>> {
        let Some(index) = self.tensors.find(name) else {
            return Ok(None);
        };
        let view = self.tensors.view(index);
        let mut divisors = vec![0.0; view.shape.iter().product()];
        blocks::dequantize(view.dtype, &view.bytes, &mut divisors).map_err(|e| {
            ModelError::Dimensions {
                source_name: name.into(),
                problem: e.to_string(),
            }
        })?;
        Ok(Some(divisors))
    }
}

fn value_text(metadata: &Metadata, key: &str) -> String {
    let text = metadata
        .get(key)
        .map_or_else(String::new, |v| format!("{v:?}"));
    text.chars().take(80).collect()
}
