//! Owns what a model that can be run is: a decoder, an encoder, or one of each.

use crate::architecture::{decoder_from_gguf, decoder_from_hf, gguf_architecture, model_type};
use crate::bert::{self, BertSpec};
use crate::decoder::DecoderSpec;
use crate::error::Result;
use crate::t5::{self, T5Spec};
use mettle_plan::{KvElement, Plan};
use mettle_tensor::{DType, TensorSource};
use mettle_weights::Metadata;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    Decoder(Box<DecoderSpec>),
    Encoder(BertSpec),
    EncoderDecoder(T5Spec),
}

impl Spec {
    pub fn from_hf(config: &Value) -> Result<Spec> {
        match model_type(config)? {
            bert::NAME => Ok(Spec::Encoder(bert::from_hf(config)?)),
            t5::NAME => Ok(Spec::EncoderDecoder(t5::from_hf(config)?)),
            _ => Ok(Spec::Decoder(Box::new(decoder_from_hf(config)?))),
        }
    }

    pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<Spec> {
        match gguf_architecture(metadata)? {
            bert::NAME => Ok(Spec::Encoder(bert::from_gguf(metadata, tensors)?)),
            t5::NAME => Ok(Spec::EncoderDecoder(t5::from_gguf(metadata, tensors)?)),
            _ => Ok(Spec::Decoder(Box::new(decoder_from_gguf(
                metadata, tensors,
            )?))),
        }
    }

    pub fn architecture(&self) -> &'static str {
        match self {
            Spec::Decoder(spec) => spec.architecture,
            Spec::Encoder(_) => bert::NAME,
            Spec::EncoderDecoder(_) => t5::NAME,
        }
    }

    pub fn vocab(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.vocab,
            Spec::Encoder(spec) => spec.vocab,
            Spec::EncoderDecoder(spec) => spec.vocab,
        }
    }

    /// Of the part that makes tokens, where there are two.
    pub fn layers(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.layers,
            Spec::Encoder(spec) => spec.layers,
            Spec::EncoderDecoder(spec) => spec.decoder_layers,
        }
    }

    pub fn context_length(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.context_length,
            Spec::Encoder(spec) => spec.context_length,
            Spec::EncoderDecoder(spec) => spec.context_length,
        }
    }

    /// What some rotations depend on.
    pub fn limit_context(&mut self, context_length: usize) {
        match self {
            Spec::Decoder(spec) => spec.limit_context(context_length),
            Spec::Encoder(_) | Spec::EncoderDecoder(_) => {}
        }
    }

    /// Takes from a folder's weights what its config leaves open.
    pub fn look_at(&mut self, tensors: &dyn TensorSource) {
        match self {
            Spec::Decoder(spec) => {
                if let Some(mixture) = &mut spec.mixture {
                    mixture.look_at(tensors);
                }
            }
            Spec::Encoder(spec) => spec.look_at(tensors),
            Spec::EncoderDecoder(spec) => spec.look_at(tensors),
        }
    }

    /// The only plan; or the one that makes tokens and, behind it, its encoder's.
    pub fn plans(&self, name: &str, weight_type: DType, kv_element: KvElement) -> Vec<Plan> {
        match self {
            Spec::Decoder(spec) => vec![spec.plan(name, weight_type, kv_element)],
            Spec::Encoder(spec) => vec![spec.plan(name, weight_type, kv_element)],
            Spec::EncoderDecoder(spec) => spec.plans(name, weight_type, kv_element),
        }
    }

    /// The decoder, for those who know that it is one.
    pub fn decoder(&self) -> Option<&DecoderSpec> {
        match self {
            Spec::Decoder(spec) => Some(spec),
            Spec::Encoder(_) | Spec::EncoderDecoder(_) => None,
        }
    }
}
