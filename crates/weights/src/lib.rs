//! Named tensors from GGUF files, safetensors folders or seeded random data, and the download of models into a
//! cache folder. Files are memory-mapped and nothing in them is trusted.

pub mod download;
mod dummy;
mod error;
pub mod gguf;
mod mapping;
mod random_blocks;
mod safetensors;

pub use dummy::Dummy;
pub use error::WeightsError;
pub use gguf::{Gguf, Metadata};
pub use safetensors::Safetensors;
