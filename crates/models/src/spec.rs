//! Owns what a model that can be run is: a decoder, or an encoder alone.

use crate::architecture::{decoder_from_gguf, decoder_from_hf, model_type};
use crate::bert::{self, BertSpec};
use crate::decoder::DecoderSpec;
use crate::error::Result;
use mettle_plan::{KvElement, Plan};
use mettle_tensor::{DType, TensorSource};
use mettle_weights::Metadata;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    Decoder(Box<DecoderSpec>),
    Encoder(BertSpec),
}

impl Spec {
    pub fn from_hf(config: &Value) -> Result<Spec> {
        match model_type(config)? {
            bert::NAME => Ok(Spec::Encoder(bert::from_hf(config)?)),
            _ => Ok(Spec::Decoder(Box::new(decoder_from_hf(config)?))),
        }
    }

    pub fn from_gguf(metadata: &Metadata, tensors: &dyn TensorSource) -> Result<Spec> {
        match metadata.get_str("general.architecture")? {
            Some(bert::NAME) => Ok(Spec::Encoder(bert::from_gguf(metadata, tensors)?)),
            _ => Ok(Spec::Decoder(Box::new(decoder_from_gguf(
                metadata, tensors,
            )?))),
        }
    }

    pub fn architecture(&self) -> &'static str {
        match self {
            Spec::Decoder(spec) => spec.architecture,
            Spec::Encoder(_) => bert::NAME,
        }
    }

    pub fn vocab(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.vocab,
            Spec::Encoder(spec) => spec.vocab,
        }
    }

    pub fn layers(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.layers,
            Spec::Encoder(spec) => spec.layers,
        }
    }

    pub fn context_length(&self) -> usize {
        match self {
            Spec::Decoder(spec) => spec.context_length,
            Spec::Encoder(spec) => spec.context_length,
        }
    }

    /// What some rotations depend on.
    pub fn limit_context(&mut self, context_length: usize) {
        match self {
            Spec::Decoder(spec) => spec.limit_context(context_length),
            Spec::Encoder(_) => {}
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
        }
    }

    pub fn plan(&self, name: &str, weight_type: DType, kv_element: KvElement) -> Plan {
        match self {
            Spec::Decoder(spec) => spec.plan(name, weight_type, kv_element),
            Spec::Encoder(spec) => spec.plan(name, weight_type, kv_element),
        }
    }

    /// The decoder, for those who know that it is one.
    pub fn decoder(&self) -> Option<&DecoderSpec> {
        match self {
            Spec::Decoder(spec) => Some(spec),
            Spec::Encoder(_) => None,
        }
    }
}
