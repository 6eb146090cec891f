//! Owns the numbered buffers of a plan and the column slices that ops name.

use crate::dim::Dim;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct BufferId(pub u32);

/// What a buffer's elements are. The backend chooses the type of activations; the others are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    Activation,
    F32,
    U32,
}

/// A matrix of scratch memory: `rows` by `width`.
#[derive(Clone, Debug, Serialize)]
pub struct Buffer {
    pub name: String,
    pub rows: Dim,
    pub width: usize,
    pub element: Element,
    /// Filled from the step's input before the first op, like token ids; never placed over another buffer.
    pub is_input: bool,
    /// Read by the host after the last op, like logits.
    pub is_output: bool,
}

/// Columns `start..start + width` of all rows of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Slice {
    pub buffer: BufferId,
    pub start: usize,
    pub width: usize,
}

impl Slice {
    pub fn overlaps(&self, other: &Slice) -> bool {
        self.buffer == other.buffer
            && self.start < other.start + other.width
            && other.start < self.start + self.width
    }

    /// Whether every column of `other` is one of these.
    pub fn covers(&self, other: &Slice) -> bool {
        self.buffer == other.buffer
            && self.start <= other.start
            && other.start + other.width <= self.start + self.width
    }

    /// A part of this slice, `start` counted from its own first column.
    pub fn columns(&self, start: usize, width: usize) -> Slice {
        assert!(
            start + width <= self.width,
            "columns {start}..{} of a slice {} wide",
            start + width,
            self.width
        );
        Slice {
            buffer: self.buffer,
            start: self.start + start,
            width,
        }
    }
}
