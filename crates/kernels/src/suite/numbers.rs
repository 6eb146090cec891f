//! Owns numbers as kernels store them, made up and compared with an f64 reference.

use crate::params::Scalar;
use crate::select::Element;
use half::{bf16, f16};

pub(super) const HALVES: [Element; 2] = [Element::F16, Element::Bf16];

impl Element {
    /// Half a unit in the last place, relative: what one rounding costs at the most.
    pub(super) fn rounding(self) -> f64 {
        match self {
            Element::F16 => 2f64.powi(-11),
            Element::Bf16 => 2f64.powi(-8),
            Element::F32 => 2f64.powi(-24),
        }
    }

    pub(super) fn round(self, value: f32) -> f32 {
        match self {
            Element::F16 => f16::from_f32(value).to_f32(),
            Element::Bf16 => bf16::from_f32(value).to_f32(),
            Element::F32 => value,
        }
    }

    pub(super) fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Element::F16 => (values.iter())
                .flat_map(|v| f16::from_f32(*v).to_le_bytes())
                .collect(),
            Element::Bf16 => (values.iter())
                .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
                .collect(),
            Element::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    pub(super) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        if self == Element::F32 {
            let floats = read_words(bytes).into_iter().map(f32::from_bits);
            return floats.collect();
        }
        let halves = bytes
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]));
        let number = |bits| match self {
            Element::F16 => f16::from_bits(bits).to_f32(),
            _ => bf16::from_bits(bits).to_f32(),
        };
        halves.map(number).collect()
    }

    /// NaN everywhere.
    pub(super) fn poisoned(self, count: usize) -> Vec<u8> {
        vec![0xff; count * self.bytes()]
    }
}

pub(super) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(super) fn read_words(bytes: &[u8]) -> Vec<u32> {
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

/// Numbers in [-1, 1), the same for the same seed, as `element` holds them.
pub(super) fn random(element: Element, seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            element.round((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
        })
        .collect()
}

pub(super) fn u(value: usize) -> Scalar {
    Scalar::U32(value as u32)
}

pub(super) fn f(value: f32) -> Scalar {
    Scalar::F32(value)
}

pub(super) fn l(value: usize) -> Scalar {
    Scalar::U64(value as u64)
}

/// An error for the first value farther from the reference than `absolute + relative * |reference|`, NaN included.
pub(super) fn close(
    what: &str,
    got: &[f32],
    wanted: &[f64],
    absolute: f64,
    relative: f64,
) -> Result<(), String> {
    check(got.len() == wanted.len(), || format!("{what}: lengths"))?;
    for (at, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let error = (f64::from(got) - wanted).abs();
        let limit = absolute + relative * wanted.abs();
        // Not `error > limit`: that lets NaN through.
        check(error <= limit, || {
            format!(
                "{what}: [{at}] is {got}, the reference {wanted}: {error:e} apart, {limit:e} allowed"
            )
        })?;
    }
    Ok(())
}

pub(super) fn check(right: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(message()) }
}
