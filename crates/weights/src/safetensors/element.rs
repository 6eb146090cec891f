//! Owns the element types of safetensors files that can be read: the dense ones, and what quantized formats pack into.

use mettle_tensor::DType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F32,
    F16,
    BF16,
    F8E4M3,
    I32,
    I64,
    U32,
    U8,
}

impl Element {
    const ALL: [Element; 8] = [
        Element::F32,
        Element::F16,
        Element::BF16,
        Element::F8E4M3,
        Element::I32,
        Element::I64,
        Element::U32,
        Element::U8,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Element::F32 => "F32",
            Element::F16 => "F16",
            Element::BF16 => "BF16",
            Element::F8E4M3 => "F8_E4M3",
            Element::I32 => "I32",
            Element::I64 => "I64",
            Element::U32 => "U32",
            Element::U8 => "U8",
        }
    }

    pub fn from_name(name: &str) -> Option<Element> {
        Element::ALL.into_iter().find(|e| e.name() == name)
    }

    pub const fn bytes(self) -> usize {
        match self {
            Element::I64 => 8,
            Element::F32 | Element::I32 | Element::U32 => 4,
            Element::F16 | Element::BF16 => 2,
            Element::F8E4M3 | Element::U8 => 1,
        }
    }

    /// The type of a tensor that is computed with as it is.
    pub const fn dense(self) -> Option<DType> {
        match self {
            Element::F32 => Some(DType::F32),
            Element::F16 => Some(DType::F16),
            Element::BF16 => Some(DType::BF16),
            Element::F8E4M3 | Element::I32 | Element::I64 | Element::U32 | Element::U8 => None,
        }
    }
}
