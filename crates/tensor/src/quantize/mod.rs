//! From `f32` to stored blocks: for each type the scales, offsets and codes with which a block loses little. The other
//! direction, and what the bytes mean, is in `blocks`.

mod dense;
mod fit;
mod importance;
mod iq4_xs;
mod levels;
mod pack;
mod q2_k;
mod q3_k;
mod q4_k;
mod q5_k;
mod q6_k;
mod small;
mod super_block;

use crate::DType;
use half::f16;

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum QuantizeError {
    #[error(
        "{dtype}: {elements} elements and room for {bytes} bytes are not the same number of blocks"
    )]
    LengthMismatch {
        dtype: DType,
        elements: usize,
        bytes: usize,
    },
    #[error("{dtype} can be read, but not written")]
    ReadOnly { dtype: DType },
    #[error("element {at} is {value}")]
    NotFinite { at: usize, value: f32 },
    #[error("element {at} is {value}, too large for {dtype}")]
    TooLarge { at: usize, value: f32, dtype: DType },
}

/// Writes the blocks that stand for `values`. `out` must have room for exactly those.
pub fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), QuantizeError> {
    if dtype.row_bytes(values.len()) != Some(out.len()) {
        return Err(QuantizeError::LengthMismatch {
            dtype,
            elements: values.len(),
            bytes: out.len(),
        });
    }
    check(dtype, values)?;
    let blocks = values
        .chunks_exact(dtype.block_len())
        .zip(out.chunks_exact_mut(dtype.block_bytes()));
    match dtype {
        DType::F32 => blocks.for_each(|(v, b)| dense::f32(v, b)),
        DType::F16 => blocks.for_each(|(v, b)| dense::f16(v, b)),
        DType::BF16 => blocks.for_each(|(v, b)| dense::bf16(v, b)),
        DType::Q4_0 => blocks.for_each(|(v, b)| small::q4_0(v, b)),
        DType::Q4_1 => blocks.for_each(|(v, b)| small::q4_1(v, b)),
        DType::Q5_0 => blocks.for_each(|(v, b)| small::q5_0(v, b)),
        DType::Q5_1 => blocks.for_each(|(v, b)| small::q5_1(v, b)),
        DType::Q8_0 => blocks.for_each(|(v, b)| small::q8_0(v, b)),
        DType::IQ4_NL => blocks.for_each(|(v, b)| small::iq4_nl(v, b)),
        DType::Q2_K => blocks.for_each(|(v, b)| q2_k::quantize(v, b)),
        DType::Q3_K => blocks.for_each(|(v, b)| q3_k::quantize(v, b)),
        DType::Q4_K => blocks.for_each(|(v, b)| q4_k::quantize(v, b)),
        DType::Q5_K => blocks.for_each(|(v, b)| q5_k::quantize(v, b)),
        DType::Q6_K => blocks.for_each(|(v, b)| q6_k::quantize(v, b)),
        DType::IQ4_XS => blocks.for_each(|(v, b)| iq4_xs::quantize(v, b)),
        DType::MXFP4 | DType::Affine8 | DType::Zero4 | DType::F8 => {
            return Err(QuantizeError::ReadOnly { dtype });
        }
    }
    Ok(())
}

/// Every value must be a number, and one that the type can come near: scales are halves.
fn check(dtype: DType, values: &[f32]) -> Result<(), QuantizeError> {
    let largest = match dtype {
        DType::F32 => f32::MAX,
        DType::BF16 => half::bf16::MAX.to_f32(),
        _ => f16::MAX.to_f32(),
    };
    let is_bad = |v: &f32| v.is_nan() || v.abs() > largest;
    match values.iter().position(is_bad) {
        None => Ok(()),
        Some(at) if values[at].is_finite() => Err(QuantizeError::TooLarge {
            at,
            value: values[at],
            dtype,
        }),
        Some(at) => Err(QuantizeError::NotFinite {
            at,
            value: values[at],
        }),
    }
}

/// The half nearest to `x`, at most the largest finite one.
fn to_half(x: f32) -> f16 {
    let largest = f16::MAX.to_f32();
    f16::from_f32(x.clamp(-largest, largest))
}

fn put_half(block: &mut [u8], at: usize, value: f16) {
    block[at..at + 2].copy_from_slice(&value.to_le_bytes());
}
