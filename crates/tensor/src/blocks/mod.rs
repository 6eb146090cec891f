//! Block formats: the layout of each block and its exact meaning in `f32`. Where a format takes more than a look at a byte,
//! its integers are public, for backends that repack blocks; all of those are tested against `dequantize`.

mod affine8;
mod dense;
pub mod f8;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nibbles;
pub mod q2_k;
pub mod q3_k;
mod q4_0;
mod q4_1;
pub mod q4_k;
pub mod q5_0;
mod q5_1;
pub mod q5_k;
pub mod q6_k;
mod q8_0;
mod zero4;

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
        DType::Q5_0 => blocks.for_each(|(b, o)| q5_0::dequantize(b, o)),
        DType::Q5_1 => blocks.for_each(|(b, o)| q5_1::dequantize(b, o)),
        DType::Q8_0 => blocks.for_each(|(b, o)| q8_0::dequantize(b, o)),
        DType::Q2_K => blocks.for_each(|(b, o)| q2_k::dequantize(b, o)),
        DType::Q3_K => blocks.for_each(|(b, o)| q3_k::dequantize(b, o)),
        DType::Q4_K => blocks.for_each(|(b, o)| q4_k::dequantize(b, o)),
        DType::Q5_K => blocks.for_each(|(b, o)| q5_k::dequantize(b, o)),
        DType::Q6_K => blocks.for_each(|(b, o)| q6_k::dequantize(b, o)),
        DType::IQ4_NL => blocks.for_each(|(b, o)| iq4_nl::dequantize(b, o)),
        DType::IQ4_XS => blocks.for_each(|(b, o)| iq4_xs::dequantize(b, o)),
        DType::MXFP4 => blocks.for_each(|(b, o)| mxfp4::dequantize(b, o)),
        DType::Affine8 => blocks.for_each(|(b, o)| affine8::dequantize(b, o)),
        DType::Zero4 => blocks.for_each(|(b, o)| zero4::dequantize(b, o)),
        DType::F8 => blocks.for_each(|(b, o)| f8::dequantize(b, o)),
    }
    Ok(())
}

/// The little-endian half at byte `at`, widened.
pub fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
