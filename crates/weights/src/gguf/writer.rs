//! Owns a GGUF file that is being written: beside its place as `NAME.part`, renamed when it is whole, removed when it will
//! never be.

use super::value_bytes::write_str;
use super::{Metadata, alignment};
use crate::error::{Result, WeightsError};
use mettle_tensor::TensorInfo;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const VERSION: u32 = 3;

pub struct GgufWriter {
    file: File,
    part: PathBuf,
    place: PathBuf,
    replace: bool,
    alignment: usize,
    /// Bytes of each tensor, in the order in which they must come.
    expected: std::vec::IntoIter<usize>,
    /// Bytes that the tensor under way still needs.
    missing: usize,
    written: u64,
    is_done: bool,
}

impl GgufWriter {
    /// Starts the file with all that is not a weight. `replace`: a file that is at `place` already will go.
    pub fn create(
        place: &Path,
        replace: bool,
        metadata: &Metadata,
        tensors: &[TensorInfo],
    ) -> Result<GgufWriter> {
        let alignment = alignment(metadata)?;
        let (head, expected) = head(metadata, tensors, alignment)?;
        refuse_existing(place, replace)?;
        let mut part = place.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = open_alone(&part)?;
        let mut writer = GgufWriter {
            file,
            part,
            place: place.to_owned(),
            replace,
            alignment,
            expected: expected.into_iter(),
            missing: 0,
            written: 0,
            is_done: false,
        };
        writer.throw_away_what_a_killed_writer_left()?;
        writer.put(&head)?;
        Ok(writer)
    }

    /// The next bytes of the tensors, one tensor after the other. No call may hold bytes of two.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.missing == 0 {
            self.pad()?;
            self.missing = self.expected.next().expect("a tensor of the table");
        }
        assert!(
            bytes.len() <= self.missing,
            "more bytes than the tensor has"
        );
        self.missing -= bytes.len();
        self.put(bytes)
    }

    /// Moves the file into its place; its size.
    pub fn finish(mut self) -> Result<u64> {
        assert_eq!(
            (self.missing, self.expected.len()),
            (0, 0),
            "bytes are missing"
        );
        self.pad()?;
        // Without the sync a crash could leave a file of the right name and the wrong contents.
        self.file.sync_all().map_err(|e| self.explain(e))?;
        refuse_existing(&self.place, self.replace)?;
        std::fs::rename(&self.part, &self.place)
            .map_err(WeightsError::io("rename to", &self.place))?;
        self.is_done = true;
        Ok(self.written)
    }

    fn throw_away_what_a_killed_writer_left(&self) -> Result<()> {
        let found = self.file.metadata();
        let emptied = found.and_then(|found| match found.len() {
            0 => Ok(()),
            _ => self.file.set_len(0),
        });
        emptied.map_err(WeightsError::io("empty", &self.part))
    }

    fn pad(&mut self) -> Result<()> {
        let aligned = self.written.next_multiple_of(self.alignment as u64);
        let zeros = vec![0; (aligned - self.written) as usize];
        self.put(&zeros)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| self.explain(e))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn explain(&self, error: io::Error) -> WeightsError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WeightsError::DiskFull {
                file: self.place.clone(),
                written: self.written,
            },
            _ => WeightsError::io("write", &self.part)(error),
        }
    }
}

impl Drop for GgufWriter {
    fn drop(&mut self) {
        if !self.is_done {
            // Nobody is left to tell if this fails.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

fn refuse_existing(place: &Path, replace: bool) -> Result<()> {
    match !replace && place.exists() {
        true => Err(WeightsError::Exists {
            path: place.to_owned(),
        }),
        false => Ok(()),
    }
}

/// Opens a file that no other writer has.
fn open_alone(part: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(part)
        .map_err(WeightsError::io("create", part))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            return Err(WeightsError::Exists {
                path: part.to_owned(),
            });
        }
        // Some file systems have no locks; two writers of one file are unlikely enough there.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    Ok(file)
}

/// Everything before the first tensor's padding, and the bytes of each tensor.
fn head(
    metadata: &Metadata,
    tensors: &[TensorInfo],
    alignment: usize,
) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut out = b"GGUF".to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.entries().len() as u64).to_le_bytes());
    for (key, value) in metadata.entries() {
        write_str(key, &mut out);
        value.write(&mut out);
    }
    let mut offset = 0;
    let mut sizes = Vec::with_capacity(tensors.len());
    for TensorInfo { name, dtype, shape } in tensors {
        let bytes = dtype
            .tensor_bytes(shape)
            .expect("the shape is of whole blocks");
        let Some(number) = dtype.ggml_number() else {
            return Err(WeightsError::Unsupported(format!(
                "tensor {name:?}: GGUF files have no type {dtype}"
            )));
        };
        write_str(name, &mut out);
        out.extend((shape.len() as u32).to_le_bytes());
        // The file stores the innermost dimension first.
        for dim in shape.iter().rev() {
            out.extend((*dim as u64).to_le_bytes());
        }
        out.extend(number.to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset += bytes.next_multiple_of(alignment);
        sizes.push(bytes);
    }
    Ok((out, sizes))
}
