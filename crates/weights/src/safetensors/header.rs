//! Owns the header of a safetensors file: a length, then JSON that places every tensor in the rest of the file.

use super::element::Element;
use super::tensor_map::TensorMap;
use crate::error::{Result, WeightsError};
use serde::Deserialize;
use std::ops::Range;

/// The limit that the reference implementation sets.
const LONGEST_HEADER: u64 = 100_000_000;
const LENGTH_BYTES: usize = 8;
const MOST_DIMS: usize = 8;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// A tensor as the file has it, and the range of its bytes.
pub struct Stored {
    pub name: String,
    pub element: Element,
    pub shape: Vec<usize>,
    pub range: Range<usize>,
}

/// The tensors of a file in the order of their bytes. They must fill the file without
/// a gap, so a file that was cut short or added to is noticed.
pub fn read(bytes: &[u8]) -> Result<Vec<Stored>> {
    let json = json(bytes)?;
    let data_start = LENGTH_BYTES + json.len();
    let data_len = bytes.len() - data_start;
    let TensorMap(mut entries) = serde_json::from_slice::<TensorMap<Entry>>(json)
        .map_err(|e| WeightsError::Malformed(format!("the header is not valid: {e}")))?;
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut tensors = Vec::with_capacity(entries.len());
    let mut filled = 0;
    for (name, entry) in entries {
        let [begin, end] = entry.data_offsets;
        let (element, shape, size) = sized(&name, entry)?;
        if begin != filled as u64 || end.checked_sub(begin) != Some(size as u64) {
            return Err(malformed(
                &name,
                format!(
                    "of {size} bytes is placed at {begin}..{end}; the bytes before it end at {filled}"
                ),
            ));
        }
        if end > data_len as u64 {
            return Err(malformed(
                &name,
                format!("ends at byte {end} of the data, but the file holds {data_len}"),
            ));
        }
        let start = data_start + filled;
        tensors.push(Stored {
            name,
            element,
            shape,
            range: start..start + size,
        });
        filled += size;
    }
    if filled != data_len {
        return Err(WeightsError::Malformed(format!(
            "the tensors fill {filled} bytes, but the file holds {data_len} bytes of data"
        )));
    }
    Ok(tensors)
}

fn json(bytes: &[u8]) -> Result<&[u8]> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(WeightsError::Truncated {
            what: "the length of the header",
            at: 0,
            needed: LENGTH_BYTES as u64,
            left: bytes.len(),
        });
    };
    let length = u64::from_le_bytes(*length);
    if length > LONGEST_HEADER {
        return Err(WeightsError::Malformed(format!(
            "not a safetensors file: its header would be {length} bytes long; the limit is {LONGEST_HEADER}"
        )));
    }
    rest.get(..length as usize).ok_or(WeightsError::Truncated {
        what: "the header",
        at: LENGTH_BYTES,
        needed: length,
        left: rest.len(),
    })
}

pub fn unsupported(tensor: &str, dtype: String) -> WeightsError {
    WeightsError::UnsupportedType {
        tensor: tensor.to_owned(),
        dtype,
        supported: "F32, F16, BF16; F8_E4M3, I32, U32 in quantized models".to_owned(),
    }
}

fn sized(name: &str, entry: Entry) -> Result<(Element, Vec<usize>, usize)> {
    let Some(element) = Element::from_name(&entry.dtype) else {
        return Err(unsupported(name, entry.dtype));
    };
    if entry.shape.len() > MOST_DIMS {
        return Err(malformed(
            name,
            format!(
                "has {} dimensions; at most {MOST_DIMS} are possible",
                entry.shape.len()
            ),
        ));
    }
    if entry.shape.contains(&0) {
        return Err(malformed(
            name,
            format!("has an empty dimension: {:?}", entry.shape),
        ));
    }
    let shape: Option<Vec<usize>> = entry
        .shape
        .iter()
        .map(|d| usize::try_from(*d).ok())
        .collect();
    let sized = shape.and_then(|shape| {
        let multiply = |bytes: usize, dim: &usize| bytes.checked_mul(*dim);
        Some((shape.iter().try_fold(element.bytes(), multiply)?, shape))
    });
    let Some((size, shape)) = sized else {
        return Err(malformed(
            name,
            format!(
                "of {:?} {} elements is larger than any memory",
                entry.shape,
                element.name()
            ),
        ));
    };
    Ok((element, shape, size))
}

fn malformed(tensor: &str, problem: String) -> WeightsError {
    WeightsError::Malformed(format!("tensor {tensor:?} {problem}"))
}
