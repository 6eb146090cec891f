//! Owns places in device memory as the recorder names them: which buffer, from which byte, of which element.

use mettle_kernels::select::Element;

/// A buffer of the executable, by its number in [`crate::memory::Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferIndex(pub u32);

/// Memory from a byte on, as a kernel's parameter would describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub buffer: BufferIndex,
    pub offset: usize,
    /// As MSL writes it: `half`, `uint`.
    pub element: &'static str,
}

impl Place {
    pub const fn new(buffer: BufferIndex, offset: usize, element: &'static str) -> Place {
        Place {
            buffer,
            offset,
            element,
        }
    }

    pub const fn bytes_on(self, bytes: usize) -> Place {
        Place {
            offset: self.offset + bytes,
            ..self
        }
    }

    pub const fn of(self, element: &'static str) -> Place {
        Place { element, ..self }
    }
}

pub const fn element_name(element: Element) -> &'static str {
    match element {
        Element::F16 => "half",
        Element::Bf16 => "bfloat",
        Element::F32 => "float",
    }
}

pub const fn element_bytes(element: Element) -> usize {
    match element {
        Element::F16 | Element::Bf16 => 2,
        Element::F32 => 4,
    }
}

/// Rows of activations: a place, the elements from one row to the next, and how many of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub place: Place,
    pub stride: u32,
    pub width: u32,
}
