//! Owns the door through which backends read weights: named, shaped, typed bytes. Knows no file format.

use crate::DType;
use std::borrow::Cow;

/// What is known of a tensor before its bytes are read. `shape` is outermost first: a matrix is `[rows, columns]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

/// A tensor's bytes as stored: rows one after another, each a whole number of blocks.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    pub dtype: DType,
    pub shape: &'a [usize],
    /// Owned where the source converts what its files hold: then they live as long as the view.
    pub bytes: Cow<'a, [u8]>,
    /// Where rows are not stored in the model's order of columns: stored column `j` is the model's column `order[j]`.
    pub order: Option<&'a [u32]>,
}

/// A set of named tensors: a GGUF file, safetensors shards, or seeded random data.
pub trait TensorSource: Send + Sync {
    /// Every tensor of the source, in file order.
    fn tensors(&self) -> &[TensorInfo];

    /// The bytes of tensor `index` of `tensors()`.
    fn view(&self, index: usize) -> TensorView<'_>;

    /// Says that tensor `index` will not be read again soon, so that its memory may be given back.
    fn release(&self, _index: usize) {}

    fn find(&self, name: &str) -> Option<usize> {
        self.tensors().iter().position(|t| t.name == name)
    }
}
