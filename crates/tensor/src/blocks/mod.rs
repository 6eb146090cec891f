//! Quantized block formats as ggml stores them: the layout of each block and its exact meaning in `f32`.
//! Every backend that repacks blocks is tested against these.

mod dense;
mod q4_0;
mod q4_1;
mod q4_k;
mod q6_k;
mod q8_0;

pub use q4_k::scale_and_min as q4_k_scale_and_min;

use crate::DType;
use half::f16;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BlockError {
    #[error("{dtype}: {bytes} bytes are not a whole number of {block_bytes}-byte blocks")]
    PartialBlock {
        dtype: DType,
        bytes: usize,
        block_bytes: usize,
    },
    #[error("{dtype}: {bytes} bytes hold {held} elements, room was given for {room}")]
    LengthMismatch {
        dtype: DType,
        bytes: usize,
        held: usize,
        room: usize,
    },
}

/// Writes the `f32` values of stored blocks. `out` must have room for exactly the elements that `bytes` hold.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), BlockError> {
    let block_bytes = dtype.block_bytes();
    if !bytes.len().is_multiple_of(block_bytes) {
        return Err(BlockError::PartialBlock {
            dtype,
            bytes: bytes.len(),
            block_bytes,
        });
    }
    let held = bytes.len() / block_bytes * dtype.block_len();
    if held != out.len() {
        return Err(BlockError::LengthMismatch {
            dtype,
            bytes: bytes.len(),
            held,
            room: out.len(),
        });
    }
    let blocks = bytes
        .chunks_exact(block_bytes)
        .zip(out.chunks_exact_mut(dtype.block_len()));
    match dtype {
        DType::F32 => blocks.for_each(|(b, o)| dense::f32(b, o)),
        DType::F16 => blocks.for_each(|(b, o)| dense::f16(b, o)),
        DType::BF16 => blocks.for_each(|(b, o)| dense::bf16(b, o)),
        DType::Q4_0 => blocks.for_each(|(b, o)| q4_0::dequantize(b, o)),
        DType::Q4_1 => blocks.for_each(|(b, o)| q4_1::dequantize(b, o)),
        DType::Q8_0 => blocks.for_each(|(b, o)| q8_0::dequantize(b, o)),
        DType::Q4_K => blocks.for_each(|(b, o)| q4_k::dequantize(b, o)),
        DType::Q6_K => blocks.for_each(|(b, o)| q6_k::dequantize(b, o)),
    }
    Ok(())
}

/// The little-endian half at byte `at`, widened.
fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
