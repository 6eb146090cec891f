//! Owns the look at stored tensors: companions by exact name, shapes that fit, words and scales out of their bytes.

use crate::error::{Result, WeightsError};
use crate::safetensors::element::Element;
use crate::safetensors::shards::Shards;
use half::{bf16, f16};

/// The stored tensor's name up to its last dot: the layer that it belongs to.
pub fn layer(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(layer, _)| layer)
}

/// The name that the model knows a packed tensor by.
pub fn model_name(stored: &str) -> String {
    format!("{}.weight", layer(stored))
}

/// Whether tensor `index` is called `LAYER.ending` and has elements of this kind.
pub fn is(shards: &Shards, index: usize, ending: &str, element: Element) -> bool {
    let tensor = &shards.tensors()[index];
    let last = tensor.name.rsplit_once('.').map(|(_, last)| last);
    last == Some(ending) && tensor.element == element
}

/// The tensor `ending` of the same layer as tensor `index`.
pub fn companion(shards: &Shards, index: usize, ending: &str) -> Option<usize> {
    let name = &shards.tensors()[index].name;
    shards.find(&format!("{}.{ending}", layer(name)))
}

/// The same, of this type and shape; it must be there.
pub fn require(
    shards: &Shards,
    index: usize,
    ending: &str,
    elements: &[Element],
    shape: &[usize],
) -> Result<usize> {
    let Some(other) = companion(shards, index, ending) else {
        let name = &shards.tensors()[index].name;
        return Err(malformed(
            shards,
            index,
            format!("has no {}.{ending}", layer(name)),
        ));
    };
    let found = &shards.tensors()[other];
    if !elements.contains(&found.element) || found.shape != shape {
        let names: Vec<&str> = elements.iter().map(|e| e.name()).collect();
        return Err(malformed(
            shards,
            other,
            format!(
                "is {} {:?}; with {:?} of shape {:?} it must be {} {shape:?}",
                found.element.name(),
                found.shape,
                shards.tensors()[index].name,
                shards.tensors()[index].shape,
                names.join(" or "),
            ),
        ));
    }
    Ok(other)
}

/// Scales that our blocks hold as halves; all must be within a half's range. Smaller ones than halves have round to the
/// nearest that they have: below 6e-5 they lose bits, as published weights do not go that low.
pub const SCALES: [Element; 3] = [Element::F16, Element::BF16, Element::F32];

/// Refuses the scales that a half cannot hold.
pub fn check_halves(shards: &Shards, index: usize) -> Result<()> {
    let tensor = &shards.tensors()[index];
    if tensor.element == Element::F16 {
        return Ok(());
    }
    let count = shards.bytes(index).len() / tensor.element.bytes();
    let large = (0..count)
        .map(|at| float(shards, index, at))
        .find(|value| f16::from_f32(*value).is_infinite());
    shards.release(index);
    match large {
        None => Ok(()),
        Some(value) => {
            let problem = format!(
                "holds {value}, which is beyond the range of a half ({})",
                f16::MAX
            );
            Err(malformed(shards, index, problem))
        }
    }
}

/// Element `at` of a dense tensor.
pub fn float(shards: &Shards, index: usize, at: usize) -> f32 {
    let bytes = shards.bytes(index);
    match shards.tensors()[index].element {
        Element::F32 => f32::from_le_bytes(array(bytes, at)),
        Element::F16 => f16::from_le_bytes(array(bytes, at)).to_f32(),
        Element::BF16 => bf16::from_le_bytes(array(bytes, at)).to_f32(),
        other => unreachable!("scales are not stored as {}", other.name()),
    }
}

pub fn half(shards: &Shards, index: usize, at: usize) -> f16 {
    f16::from_f32(float(shards, index, at))
}

/// Word `at` of bytes that hold words.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let bytes = &bytes[at * N..(at + 1) * N];
    bytes.try_into().expect("the slice has this length")
}

pub fn malformed(shards: &Shards, index: usize, problem: String) -> WeightsError {
    let name = &shards.tensors()[index].name;
    WeightsError::Malformed(format!("tensor {name:?} {problem}"))
}
