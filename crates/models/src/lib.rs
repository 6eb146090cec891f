//! Model architectures: from a config to a plan and the exact names of its tensors, one file each.

mod architecture;
mod config;
mod decoder;
mod decoder_plan;
mod error;
mod gguf_config;
mod hf_decoder;
mod inspect;
pub mod llama;
pub mod mistral;
mod model;
mod names;
mod open;
mod plan_builder;
pub mod plan_only;
mod plans;
pub mod qwen2;
pub mod qwen3;
mod rope_config;
mod text_files;
mod variant;
mod yarn;

pub use architecture::{decoder_from_gguf, decoder_from_hf};
pub use decoder::{Biases, DecoderSpec};
pub use error::ModelError;
pub use inspect::{Inspection, inspect};
pub use model::Model;
pub use names::{LayerTensor, Names};
pub use open::{LoadFormat, OpenOptions};
pub use plans::{BUILT_IN, PlanOptions, plans};
pub use variant::AdapterSlots;
