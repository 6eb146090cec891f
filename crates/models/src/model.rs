//! Owns an open model: what it is, where its weights are and how its text is made. Runs nothing.

use crate::error::Result;
use crate::sentence::Sentence;
use crate::spec::Spec;
use crate::text_files::TextFiles;
use mettle_plan::{KvElement, Plan};
use mettle_tensor::{DType, TensorSource};
use mettle_text::{GenerationDefaults, Tokenizer};
use std::sync::{Arc, OnceLock};

pub struct Model {
    /// The file's or folder's name.
    pub name: String,
    pub spec: Spec,
    /// What a sequence may hold: the model's own limit, or the lower one asked for.
    pub context_length: usize,
    pub vocab_size: usize,
    pub tensors: Arc<dyn TensorSource>,
    pub kv_element: KvElement,
    /// The template's source. Compile it with the tokenizer's special tokens.
    pub chat_template: Option<String>,
    pub generation: GenerationDefaults,
    /// How a text becomes one vector, as far as the files say.
    pub sentence: Sentence,
    /// Every id that ends an answer, ascending.
    pub eos_ids: Vec<u32>,
    pub(crate) text: TextFiles,
    pub(crate) tokenizer: OnceLock<Arc<Tokenizer>>,
}

impl Model {
    pub fn architecture(&self) -> &'static str {
        self.spec.architecture()
    }

    /// The forward pass, unfused, with the weights' types as the source stores them: the plan that makes tokens and,
    /// behind it, an encoder's. They are prepared together.
    pub fn plans(&self) -> Vec<Plan> {
        let mut plans = self.spec.plans(&self.name, DType::F32, self.kv_element);
        for plan in &mut plans {
            plan.adopt_types(&*self.tensors);
        }
        plans
    }

    /// The only plan of a model without an encoder.
    pub fn plan(&self) -> Plan {
        let [plan] = <[Plan; 1]>::try_from(self.plans())
            .unwrap_or_else(|plans| panic!("{} has {} plans", self.name, plans.len()));
        plan
    }

    /// What the decoder of a model with an encoder starts from.
    pub fn decoder_start(&self) -> Option<u32> {
        match &self.spec {
            Spec::Decoder(_) | Spec::Encoder(_) => None,
            Spec::EncoderDecoder(spec) => Some(spec.decoder_start),
        }
    }

    /// Built when first asked for: a folder without tokenizer files serves token ids all the same.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer.clone());
        }
        let built = Arc::new(self.text.tokenizer(&self.name)?);
        Ok(self.tokenizer.get_or_init(|| built).clone())
    }
}
