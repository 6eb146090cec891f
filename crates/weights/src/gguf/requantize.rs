//! Owns the making of a GGUF file from another, with its weights in other types. Tensors are read, converted and written
//! piece by piece, so that memory stays small whatever the size of the model.

use super::mixture::Mixture;
use super::{FileType, Gguf, GgufWriter, Value};
use crate::error::{Result, WeightsError};
use mettle_tensor::quantize::{QuantizeError, quantize};
use mettle_tensor::{DType, TensorInfo, TensorSource, blocks};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Of the format of quantized blocks; it has not changed since GGUF files exist.
const QUANTIZATION_VERSION: u32 = 2;
/// Elements that a thread converts at a time: many enough to take seldom, few enough to stop soon.
const PIECE: usize = 1 << 16;
/// Elements that are converted before they are written.
const SLAB: usize = 1 << 23;

#[derive(Clone, Copy)]
pub struct Requantize<'a> {
    pub source: &'a Gguf,
    pub file_type: FileType,
    pub threads: usize,
    /// Looked at between pieces; set, it ends the work with `Cancelled`.
    pub cancel: &'a AtomicBool,
}

/// Bytes of all tensors before and after, and how many weights there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub from: u64,
    pub to: u64,
    pub weights: u64,
}

impl Requantize<'_> {
    /// Every tensor with the type that it will have, in the source's order.
    pub fn tensors(&self) -> Result<Vec<TensorInfo>> {
        let tensors = self.source.tensors();
        let mixture = Mixture::new(self.file_type, self.source.metadata(), tensors)?;
        let convert = |tensor: &TensorInfo| TensorInfo {
            dtype: mixture.choose(tensor),
            ..tensor.clone()
        };
        Ok(tensors.iter().map(convert).collect())
    }

    /// Writes the file. `progress` hears of each tensor that is done: how many, of how many, and its name.
    pub fn write(
        &self,
        place: &Path,
        replace: bool,
        mut progress: impl FnMut(usize, usize, &str),
    ) -> Result<Sizes> {
        let tensors = self.tensors()?;
        let mut metadata = self.source.metadata().clone();
        metadata.retain(|key| !key.starts_with("split."));
        let file_type = Value::U32(self.file_type.number());
        metadata.set("general.file_type", file_type);
        let version = Value::U32(QUANTIZATION_VERSION);
        metadata.set("general.quantization_version", version);
        let mut writer = GgufWriter::create(place, replace, &metadata, &tensors)?;
        let mut sizes = Sizes::default();
        for (index, tensor) in tensors.iter().enumerate() {
            let view = self.source.view(index);
            sizes.from += view.bytes.len() as u64;
            sizes.weights += tensor.shape.iter().product::<usize>() as u64;
            sizes.to += self.convert(tensor, view.dtype, &view.bytes, &mut writer)?;
            self.source.release(index);
            progress(index + 1, tensors.len(), &tensor.name);
        }
        writer.finish()?;
        Ok(sizes)
    }

    /// Writes one tensor; its bytes.
    fn convert(
        &self,
        to: &TensorInfo,
        from: DType,
        bytes: &[u8],
        writer: &mut GgufWriter,
    ) -> Result<u64> {
        let columns = to.shape[to.shape.len() - 1];
        let row_bytes = |dtype: DType| dtype.row_bytes(columns).expect("whole blocks");
        let (from_row, to_row) = (row_bytes(from), row_bytes(to.dtype));
        let slab_rows = (SLAB / columns).max(1);
        let mut made = vec![0; slab_rows.min(bytes.len() / from_row) * to_row];
        let mut written = 0;
        for (number, slab) in bytes.chunks(slab_rows * from_row).enumerate() {
            let made = &mut made[..slab.len() / from_row * to_row];
            self.convert_rows(columns, from, slab, to.dtype, made)
                .map_err(|(row, column, problem)| WeightsError::BadWeight {
                    tensor: to.name.clone(),
                    row: number * slab_rows + row,
                    column,
                    problem,
                })?;
            if self.cancel.load(Ordering::Relaxed) {
                return Err(WeightsError::Cancelled);
            }
            writer.write(made)?;
            written += made.len() as u64;
        }
        Ok(written)
    }

    /// Converts whole rows on all threads. Of the weights that cannot be converted the first is named: row, column, why.
    fn convert_rows(
        &self,
        columns: usize,
        from: DType,
        bytes: &[u8],
        to: DType,
        made: &mut [u8],
    ) -> std::result::Result<(), (usize, usize, String)> {
        let rows = (PIECE / columns).max(1);
        let row_bytes = |dtype: DType| dtype.row_bytes(columns).expect("whole blocks");
        let pieces = bytes.chunks(rows * row_bytes(from));
        let pieces = pieces
            .zip(made.chunks_mut(rows * row_bytes(to)))
            .enumerate();
        let pieces = Mutex::new(pieces);
        // Pieces are taken in order, so all before a bad one are looked at too: the smallest place is the first.
        let first_bad: Mutex<Option<(usize, usize, String)>> = Mutex::new(None);
        let work = || {
            let mut values = vec![0.0; rows * columns];
            while !self.cancel.load(Ordering::Relaxed) {
                let next = pieces.lock().expect("no thread panics with it").next();
                let Some((number, (bytes, made))) = next else {
                    return;
                };
                let values = &mut values[..bytes.len() / row_bytes(from) * columns];
                blocks::dequantize(from, bytes, values).expect("whole blocks");
                if let Err(error) = convert(from, bytes, to, values, made) {
                    let (at, problem) = explain(error);
                    let place = (number * rows + at / columns, at % columns, problem);
                    let mut first = first_bad.lock().expect("no thread panics with it");
                    if first.as_ref().is_none_or(|first| place < *first) {
                        *first = Some(place);
                    }
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
        let first_bad = first_bad.into_inner().expect("all threads ended");
        first_bad.map_or(Ok(()), Err)
    }
}

/// What is stored in the right type already is only looked at.
fn convert(
    from: DType,
    bytes: &[u8],
    to: DType,
    values: &[f32],
    made: &mut [u8],
) -> std::result::Result<(), QuantizeError> {
    if from != to {
        return quantize(to, values, made);
    }
    if let Some(at) = values.iter().position(|v| !v.is_finite()) {
        let value = values[at];
        return Err(QuantizeError::NotFinite { at, value });
    }
    made.copy_from_slice(bytes);
    Ok(())
}

/// Where the bad weight is, and what is wrong with it.
fn explain(error: QuantizeError) -> (usize, String) {
    match error {
        QuantizeError::NotFinite { at, value } => (at, format!("the weight is {value}")),
        QuantizeError::TooLarge { at, value, dtype } => {
            (at, format!("the weight {value} is too large for {dtype}"))
        }
        other => unreachable!("{other}"),
    }
}
