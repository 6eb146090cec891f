//! Named tensors from GGUF files, safetensors folders or seeded random data, and the download of models into a
//! cache folder. Files are memory-mapped and nothing in them is trusted.

pub mod download;
mod dummy;
mod error;
mod free_memory;
pub mod gguf;
mod mapping;
mod random_blocks;
mod safetensors;

pub use dummy::Dummy;
pub use error::WeightsError;
pub use free_memory::free_memory;
pub use gguf::{Gguf, Metadata};
pub use safetensors::{Quantization, Safetensors};
