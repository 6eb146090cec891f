//! Owns an open GGUF model, of one file or split: its metadata, its list of tensors and their bytes.

mod cursor;
mod file_type;
mod ggml_types;
mod metadata;
mod mixture;
mod requantize;
mod split;
mod tensors;
mod value;
mod value_bytes;
mod writer;

pub use file_type::FileType;
pub use metadata::Metadata;
pub use requantize::{Requantize, Sizes};
pub use split::PartName;
pub use value::{Array, Value};
pub use writer::GgufWriter;

use crate::error::{Result, WeightsError};
use crate::mapping::Mapping;
use cursor::Cursor;
use mettle_tensor::{TensorInfo, TensorSource, TensorView};
use split::{Split, check_part};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

const DEFAULT_ALIGNMENT: u64 = 32;
/// Larger alignments than a huge page's have no use; they only push the data out of the file.
const LARGEST_ALIGNMENT: u64 = 1 << 21;

/// A GGUF model of version 2 or 3, little endian: one file, or all parts of a split one.
pub struct Gguf {
    parts: Vec<Mapping>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    places: Vec<Place>,
    by_name: HashMap<String, usize>,
}

struct Place {
    part: usize,
    range: Range<usize>,
}

/// One file that was read: its metadata, and its tensors with their places in it.
struct Part {
    bytes: Mapping,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    ranges: Vec<Range<usize>>,
}

impl Gguf {
    /// Maps the file and checks everything but the contents of the tensors. Any part of a split model stands for all.
    pub fn open(path: &Path) -> Result<Gguf> {
        let named = Part::open(path)?;
        let split = Split::read(&named.metadata).map_err(|e| e.in_file(path))?;
        let Some(split) = split else {
            return Gguf::join(vec![named]);
        };
        let paths = split.paths(path).map_err(|e| e.in_file(path))?;
        let mut named = Some(named);
        let mut parts = Vec::new();
        for (number, path) in paths.iter().enumerate() {
            let part = match named.take_if(|_| number as u64 == split.number) {
                Some(named) => named,
                None => Part::open(path).map_err(|e| missing_part(e, number, paths.len()))?,
            };
            check_part(
                number,
                (&parts.first().unwrap_or(&part).metadata, split),
                &part.metadata,
            )
            .map_err(|e| e.in_file(path))?;
            parts.push(part);
        }
        Gguf::join(parts).map_err(|e| e.in_file(path))
    }

    /// The same for a file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Gguf> {
        Gguf::from_parts(vec![bytes])
    }

    /// The same for all parts of a split model, in order.
    pub fn from_parts(parts: Vec<Vec<u8>>) -> Result<Gguf> {
        let read = |bytes| Part::read(Mapping::Held(bytes));
        let parts = parts.into_iter().map(read).collect::<Result<Vec<Part>>>()?;
        let first = parts.first();
        if let Some(split) = first.map_or(Ok(None), |p| Split::read(&p.metadata))? {
            if split.count != parts.len() as u64 {
                return Err(WeightsError::Malformed(format!(
                    "part {} of {} of a split GGUF model, but the number of parts here is {}",
                    split.number + 1,
                    split.count,
                    parts.len()
                )));
            }
            for (number, part) in parts.iter().enumerate() {
                check_part(number, (&parts[0].metadata, split), &part.metadata)?;
            }
        }
        Gguf::join(parts)
    }

    /// The metadata of the file, or of the first part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Puts checked parts together: each tensor once, and all of them.
    fn join(parts: Vec<Part>) -> Result<Gguf> {
        let mut gguf = Gguf {
            parts: Vec::new(),
            metadata: Metadata::default(),
            tensors: Vec::new(),
            places: Vec::new(),
            by_name: HashMap::new(),
        };
        for (number, part) in parts.into_iter().enumerate() {
            for (info, range) in part.tensors.into_iter().zip(part.ranges) {
                let index = gguf.tensors.len();
                if let Some(earlier) = gguf.by_name.insert(info.name.clone(), index) {
                    return Err(WeightsError::Malformed(format!(
                        "tensor {:?} is in part {} and in part {}",
                        info.name,
                        gguf.places[earlier].part + 1,
                        number + 1
                    )));
                }
                gguf.tensors.push(info);
                gguf.places.push(Place {
                    part: number,
                    range,
                });
            }
            gguf.parts.push(part.bytes);
            if number == 0 {
                gguf.metadata = part.metadata;
            }
        }
        match Split::read(&gguf.metadata)? {
            Some(split) if split.tensors != gguf.tensors.len() as u64 => {
                Err(WeightsError::Malformed(format!(
                    "the {} parts hold {} tensors, but split.tensors.count is {}",
                    split.count,
                    gguf.tensors.len(),
                    split.tensors
                )))
            }
            _ => Ok(gguf),
        }
    }
}

impl Part {
    fn open(path: &Path) -> Result<Part> {
        Part::read(Mapping::open(path)?).map_err(|e| e.in_file(path))
    }

    fn read(bytes: Mapping) -> Result<Part> {
        let mut cursor = Cursor::new(&bytes);
        let (tensor_count, key_count) = header(&mut cursor)?;
        let metadata = Metadata::read(&mut cursor, key_count)?;
        let alignment = alignment(&metadata)?;
        let stored = tensors::read(&mut cursor, tensor_count)?;
        let ranges = tensors::place(&stored, cursor.position(), alignment, bytes.len())?;
        Ok(Part {
            metadata,
            tensors: stored.into_iter().map(|t| t.info).collect(),
            ranges,
            bytes,
        })
    }
}

fn missing_part(error: WeightsError, number: usize, count: usize) -> WeightsError {
    match error {
        WeightsError::Io { path, reason, .. } if reason.kind() == ErrorKind::NotFound => {
            WeightsError::MissingPart {
                part: number + 1,
                count,
                path,
            }
        }
        other => other,
    }
}

impl TensorSource for Gguf {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        let (info, place) = (&self.tensors[index], &self.places[index]);
        TensorView {
            dtype: info.dtype,
            shape: &info.shape,
            bytes: self.parts[place.part][place.range.clone()].into(),
            order: None,
        }
    }

    fn release(&self, index: usize) {
        let place = &self.places[index];
        self.parts[place.part].release(place.range.clone());
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

/// Reads magic, version and the two counts: (tensors, metadata keys).
fn header(cursor: &mut Cursor) -> Result<(u64, u64)> {
    let magic = cursor.array::<4>("the magic number")?;
    if &magic != b"GGUF" {
        return Err(WeightsError::Malformed(format!(
            "not a GGUF file: it starts with \"{}\" instead of \"GGUF\"",
            magic.escape_ascii()
        )));
    }
    let version = cursor.u32("the version")?;
    if version != 0 && version & 0xffff == 0 {
        return Err(WeightsError::Unsupported(format!(
            "a big-endian GGUF file (version {}); only little-endian files can be read",
            version.swap_bytes()
        )));
    }
    if version != 2 && version != 3 {
        return Err(WeightsError::Unsupported(format!(
            "GGUF version {version}; versions 2 and 3 can be read"
        )));
    }
    Ok((
        cursor.u64("the tensor count")?,
        cursor.u64("the metadata count")?,
    ))
}

/// What tensors' places are multiples of.
fn alignment(metadata: &Metadata) -> Result<usize> {
    let alignment = metadata
        .get_u64("general.alignment")?
        .unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > LARGEST_ALIGNMENT {
        return Err(WeightsError::Malformed(format!(
            "general.alignment is {alignment}; it must be a power of two up to {LARGEST_ALIGNMENT}"
        )));
    }
    Ok(alignment as usize)
}
