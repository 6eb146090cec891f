//! Owns an open GGUF file: its metadata, its list of tensors and their bytes.

mod cursor;
mod ggml_types;
mod metadata;
mod tensors;
mod value;

pub use metadata::Metadata;
pub use value::{Array, Value};

use crate::error::{Result, WeightsError};
use crate::mapping::Mapping;
use cursor::Cursor;
use mettle_tensor::{TensorInfo, TensorSource, TensorView};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

const DEFAULT_ALIGNMENT: u64 = 32;
/// Larger alignments than a huge page's have no use; they only push the data out of the file.
const LARGEST_ALIGNMENT: u64 = 1 << 21;

/// A GGUF file of version 2 or 3, little endian, in one piece.
pub struct Gguf {
    bytes: Mapping,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    ranges: Vec<Range<usize>>,
    by_name: HashMap<String, usize>,
}

impl Gguf {
    /// Maps the file and checks everything but the contents of the tensors.
    pub fn open(path: &Path) -> Result<Gguf> {
        Gguf::parse(Mapping::open(path)?).map_err(|e| e.in_file(path))
    }

    /// The same for a file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Gguf> {
        Gguf::parse(Mapping::Held(bytes))
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn parse(bytes: Mapping) -> Result<Gguf> {
        let mut cursor = Cursor::new(&bytes);
        let (tensor_count, key_count) = header(&mut cursor)?;
        let metadata = Metadata::read(&mut cursor, key_count)?;
        reject_split(&metadata)?;
        let alignment = alignment(&metadata)?;
        let stored = tensors::read(&mut cursor, tensor_count)?;
        let ranges = tensors::place(&stored, cursor.position(), alignment, bytes.len())?;
        let tensors: Vec<TensorInfo> = stored.into_iter().map(|t| t.info).collect();
        let by_name = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        Ok(Gguf {
            bytes,
            metadata,
            tensors,
            ranges,
            by_name,
        })
    }
}

impl TensorSource for Gguf {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        let info = &self.tensors[index];
        TensorView {
            dtype: info.dtype,
            shape: &info.shape,
            bytes: &self.bytes[self.ranges[index].clone()],
            order: None,
        }
    }

    fn release(&self, index: usize) {
        self.bytes.release(self.ranges[index].clone());
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

fn reject_split(metadata: &Metadata) -> Result<()> {
    let parts = metadata.get_u64("split.count")?.unwrap_or(1);
    if parts <= 1 {
        return Ok(());
    }
    let part = match metadata.get_u64("split.no")? {
        Some(zero_based) => format!("part {} of {parts}", zero_based.saturating_add(1)),
        None => format!("one of {parts} parts"),
    };
    Err(WeightsError::Unsupported(format!(
        "{part} of a split GGUF model; only whole files can be read: merge the parts into one file first"
    )))
}

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
