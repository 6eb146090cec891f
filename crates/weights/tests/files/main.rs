//! Reading weight files, whole and broken.

mod allocation;
mod broken_gguf;
mod broken_quantized;
mod broken_safetensors;
mod dummy;
mod gguf_builder;
mod gguf_reading;
mod gguf_writing;
mod mxfp4;
mod quantized_reading;
mod safetensors_builder;
mod safetensors_reading;
mod split_gguf;
