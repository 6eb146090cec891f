//! Owns the header of a safetensors file: a length, then JSON that places every tensor in the rest of the file.

use super::tensor_map::TensorMap;
use crate::error::{Result, WeightsError};
use mettle_tensor::{DType, TensorInfo};
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

/// The tensors of a file and the byte range of each, in the order of their bytes. They must fill the file without
/// a gap, so a file that was cut short or added to is noticed.
pub fn read(bytes: &[u8]) -> Result<Vec<(TensorInfo, Range<usize>)>> {
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
        let (info, size) = sized(name, entry)?;
        if begin != filled as u64 || end.checked_sub(begin) != Some(size as u64) {
            return Err(malformed(
                &info.name,
                format!(
                    "of {size} bytes is placed at {begin}..{end}; the bytes before it end at {filled}"
                ),
            ));
        }
        if end > data_len as u64 {
            return Err(malformed(
                &info.name,
                format!("ends at byte {end} of the data, but the file holds {data_len}"),
            ));
        }
        tensors.push((info, data_start + filled..data_start + filled + size));
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

fn sized(name: String, entry: Entry) -> Result<(TensorInfo, usize)> {
    let dtype = match entry.dtype.as_str() {
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        _ => {
            return Err(WeightsError::UnsupportedType {
                tensor: name,
                dtype: entry.dtype,
                supported: "F32, F16, BF16".to_owned(),
            });
        }
    };
    if entry.shape.len() > MOST_DIMS {
        return Err(malformed(
            &name,
            format!(
                "has {} dimensions; at most {MOST_DIMS} are possible",
                entry.shape.len()
            ),
        ));
    }
    if entry.shape.contains(&0) {
        return Err(malformed(
            &name,
            format!("has an empty dimension: {:?}", entry.shape),
        ));
    }
    let shape: Option<Vec<usize>> = entry
        .shape
        .iter()
        .map(|d| usize::try_from(*d).ok())
        .collect();
    let sized = shape.and_then(|shape| {
        let size = match shape.as_slice() {
            [] => dtype.block_bytes(),
            dims => dtype.tensor_bytes(dims)?,
        };
        Some((size, shape))
    });
    let Some((size, shape)) = sized else {
        return Err(malformed(
            &name,
            format!(
                "of {:?} {dtype} elements is larger than any memory",
                entry.shape
            ),
        ));
    };
    Ok((TensorInfo { name, dtype, shape }, size))
}

fn malformed(tensor: &str, problem: String) -> WeightsError {
    WeightsError::Malformed(format!("tensor {tensor:?} {problem}"))
}
