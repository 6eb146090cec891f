//! Element types, quantized block formats, and views of named tensors: pure data, no I/O and no arithmetic
//! beyond turning stored blocks into `f32` and back.

pub mod blocks;
mod dtype;
pub mod quantize;
mod source;

pub use dtype::DType;
pub use source::{TensorInfo, TensorSource, TensorView};
