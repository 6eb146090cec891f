//! Owns the tensor table of a GGUF file: reading it, and placing every tensor inside the file.

use super::{cursor::Cursor, ggml_types};
use crate::error::{Result, WeightsError};
use mettle_tensor::{DType, TensorInfo};
use std::collections::HashSet;
use std::ops::Range;

const MOST_DIMS: u32 = 4;
/// An empty name (8 bytes of length), the number of dimensions (4), one of them (8), type (4) and offset (8).
const SMALLEST_ENTRY: usize = 32;

/// A tensor and where its bytes start, counted from the start of the data section.
pub struct Stored {
    pub info: TensorInfo,
    offset: u64,
    bytes: usize,
}

pub fn read(cursor: &mut Cursor, count: u64) -> Result<Vec<Stored>> {
    let count = cursor.count(count, SMALLEST_ENTRY, "the tensor table")?;
    let mut names = HashSet::new();
    let mut tensors = Vec::new();
    for _ in 0..count {
        let tensor = read_one(cursor)?;
        if !names.insert(tensor.info.name.clone()) {
            return Err(malformed(&tensor.info.name, "occurs twice"));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

fn read_one(cursor: &mut Cursor) -> Result<Stored> {
    let name = cursor.string("a tensor's name")?.to_owned();
    let dims = cursor.u32("a tensor's number of dimensions")?;
    if dims == 0 || dims > MOST_DIMS {
        return Err(malformed(
            &name,
            &format!("has {dims} dimensions; 1 to {MOST_DIMS} are possible"),
        ));
    }
    let mut stored_dims = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        stored_dims.push(cursor.u64("a tensor's dimension")?);
    }
    let type_id = cursor.u32("a tensor's type")?;
    let offset = cursor.u64("a tensor's offset")?;
    let Some(dtype) = DType::from_ggml(type_id) else {
        return Err(WeightsError::UnsupportedType {
            tensor: name,
            dtype: match ggml_types::name(type_id) {
                Some(known) => known.to_owned(),
                None => format!("number {type_id}"),
            },
            supported: DType::ALL
                .iter()
                .filter(|d| d.ggml_number().is_some())
                .map(|d| d.name())
                .collect::<Vec<_>>()
                .join(", "),
        });
    };
    if stored_dims.contains(&0) {
        return Err(malformed(
            &name,
            &format!("has an empty dimension: {stored_dims:?}"),
        ));
    }
    if !stored_dims[0].is_multiple_of(dtype.block_len() as u64) {
        return Err(malformed(
            &name,
            &format!(
                "has rows of {} elements, which are not whole {dtype} blocks of {}",
                stored_dims[0],
                dtype.block_len()
            ),
        ));
    }
    // The file stores the innermost dimension first.
    let shape: Option<Vec<usize>> = stored_dims
        .iter()
        .rev()
        .map(|d| usize::try_from(*d).ok())
        .collect();
    let sized = shape.and_then(|shape| Some((dtype.tensor_bytes(&shape)?, shape)));
    let Some((bytes, shape)) = sized else {
        return Err(malformed(
            &name,
            &format!("of {stored_dims:?} {dtype} elements is larger than any memory"),
        ));
    };
    Ok(Stored {
        info: TensorInfo { name, dtype, shape },
        offset,
        bytes,
    })
}

/// The byte range in the file of every tensor; none may leave the file, be misaligned or touch another.
pub fn place(
    tensors: &[Stored],
    head_end: usize,
    alignment: usize,
    file_len: usize,
) -> Result<Vec<Range<usize>>> {
    let mut ranges = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let name = &tensor.info.name;
        if !tensor.offset.is_multiple_of(alignment as u64) {
            return Err(malformed(
                name,
                &format!(
                    "starts at offset {}, which is not a multiple of the alignment {alignment}",
                    tensor.offset
                ),
            ));
        }
        let range = usize::try_from(tensor.offset).ok().and_then(|offset| {
            let start = head_end
                .checked_next_multiple_of(alignment)?
                .checked_add(offset)?;
            let end = start.checked_add(tensor.bytes)?;
            (end <= file_len).then_some(start..end)
        });
        let Some(range) = range else {
            return Err(malformed(
                name,
                &format!(
                    "of {} bytes at offset {} ends outside the file of {file_len} bytes",
                    tensor.bytes, tensor.offset
                ),
            ));
        };
        ranges.push(range);
    }
    reject_overlap(tensors, &ranges)?;
    Ok(ranges)
}

fn reject_overlap(tensors: &[Stored], ranges: &[Range<usize>]) -> Result<()> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|i| ranges[*i].start);
    for pair in order.windows(2) {
        if ranges[pair[0]].end > ranges[pair[1]].start {
            return Err(malformed(
                &tensors[pair[1]].info.name,
                &format!("overlaps tensor {:?}", tensors[pair[0]].info.name),
            ));
        }
    }
    Ok(())
}

fn malformed(tensor: &str, problem: &str) -> WeightsError {
    WeightsError::Malformed(format!("tensor {tensor:?} {problem}"))
}
