//! Owns the writing of metadata values in their binary form; `value` reads them.

use super::value::{Array, Value};

impl Value {
    /// Appends the number of the type and the value.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut put = |number: u32, bytes: &[u8]| {
            out.extend(number.to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Value::U8(v) => put(0, &v.to_le_bytes()),
            Value::I8(v) => put(1, &v.to_le_bytes()),
            Value::U16(v) => put(2, &v.to_le_bytes()),
            Value::I16(v) => put(3, &v.to_le_bytes()),
            Value::U32(v) => put(4, &v.to_le_bytes()),
            Value::I32(v) => put(5, &v.to_le_bytes()),
            Value::F32(v) => put(6, &v.to_le_bytes()),
            Value::Bool(v) => put(7, &[u8::from(*v)]),
            Value::Str(v) => {
                put(8, &[]);
                write_str(v, out);
            }
            Value::Array(v) => {
                put(9, &[]);
                v.write(out);
            }
            Value::U64(v) => put(10, &v.to_le_bytes()),
            Value::I64(v) => put(11, &v.to_le_bytes()),
            Value::F64(v) => put(12, &v.to_le_bytes()),
        }
    }
}

impl Array {
    /// Appends the number of the elements' type, their count and the elements.
    fn write(&self, out: &mut Vec<u8>) {
        let number: u32 = match self {
            Array::U8(_) => 0,
            Array::I8(_) => 1,
            Array::U16(_) => 2,
            Array::I16(_) => 3,
            Array::U32(_) => 4,
            Array::I32(_) => 5,
            Array::F32(_) => 6,
            Array::Bool(_) => 7,
            Array::Str(_) => 8,
            Array::Array(_) => 9,
            Array::U64(_) => 10,
            Array::I64(_) => 11,
            Array::F64(_) => 12,
        };
        out.extend(number.to_le_bytes());
        out.extend((self.len() as u64).to_le_bytes());
        match self {
            Array::U8(v) => out.extend(v),
            Array::I8(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::U16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::I16(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::U32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::I32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::F32(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::Bool(v) => out.extend(v.iter().map(|v| u8::from(*v))),
            Array::Str(v) => v.iter().for_each(|v| write_str(v, out)),
            Array::Array(v) => v.iter().for_each(|v| v.write(out)),
            Array::U64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::I64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
            Array::F64(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        }
    }
}

/// Appends the length and the bytes.
pub fn write_str(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
