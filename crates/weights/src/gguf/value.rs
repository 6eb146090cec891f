//! Owns the values of GGUF metadata: their types and their binary form.

use super::cursor::Cursor;
use crate::error::{Result, WeightsError};

/// Known files nest none or once; the limit keeps a hostile one from exhausting the stack.
const DEEPEST_NESTING: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    Array(Array),
}

/// All elements of an array have one type, so it is stored as one vector of that type.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Str(Vec<String>),
    Array(Vec<Array>),
}

impl Value {
    pub(super) fn read(cursor: &mut Cursor) -> Result<Value> {
        let what = "a metadata value";
        Ok(match cursor.u32("a metadata type")? {
            0 => Value::U8(u8::from_le_bytes(cursor.array(what)?)),
            1 => Value::I8(i8::from_le_bytes(cursor.array(what)?)),
            2 => Value::U16(u16::from_le_bytes(cursor.array(what)?)),
            3 => Value::I16(i16::from_le_bytes(cursor.array(what)?)),
            4 => Value::U32(u32::from_le_bytes(cursor.array(what)?)),
            5 => Value::I32(i32::from_le_bytes(cursor.array(what)?)),
            6 => Value::F32(f32::from_le_bytes(cursor.array(what)?)),
            7 => Value::Bool(bool_from(cursor.array::<1>(what)?[0])?),
            8 => Value::Str(cursor.string("a metadata string")?.to_owned()),
            9 => Value::Array(Array::read(cursor, 1)?),
            10 => Value::U64(u64::from_le_bytes(cursor.array(what)?)),
            11 => Value::I64(i64::from_le_bytes(cursor.array(what)?)),
            12 => Value::F64(f64::from_le_bytes(cursor.array(what)?)),
            id => return Err(unknown_type(id)),
        })
    }

    /// The type and, where it is short, the value: for error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::U8(v) => format!("the u8 {v}"),
            Value::I8(v) => format!("the i8 {v}"),
            Value::U16(v) => format!("the u16 {v}"),
            Value::I16(v) => format!("the i16 {v}"),
            Value::U32(v) => format!("the u32 {v}"),
            Value::I32(v) => format!("the i32 {v}"),
            Value::U64(v) => format!("the u64 {v}"),
            Value::I64(v) => format!("the i64 {v}"),
            Value::F32(v) => format!("the f32 {v}"),
            Value::F64(v) => format!("the f64 {v}"),
            Value::Bool(v) => format!("the bool {v}"),
            Value::Str(_) => "a string".to_owned(),
            Value::Array(array) => format!("an array of {} {}", array.len(), array.element_name()),
        }
    }
}

impl Array {
    fn read(cursor: &mut Cursor, depth: usize) -> Result<Array> {
        if depth > DEEPEST_NESTING {
            return Err(WeightsError::Malformed(format!(
                "metadata arrays are nested more than {DEEPEST_NESTING} deep at byte {}",
                cursor.position()
            )));
        }
        let element = cursor.u32("an array's element type")?;
        let count = cursor.u64("an array's length")?;
        Ok(match element {
            0 => Array::U8(numbers(cursor, count, u8::from_le_bytes)?),
            1 => Array::I8(numbers(cursor, count, i8::from_le_bytes)?),
            2 => Array::U16(numbers(cursor, count, u16::from_le_bytes)?),
            3 => Array::I16(numbers(cursor, count, i16::from_le_bytes)?),
            4 => Array::U32(numbers(cursor, count, u32::from_le_bytes)?),
            5 => Array::I32(numbers(cursor, count, i32::from_le_bytes)?),
            6 => Array::F32(numbers(cursor, count, f32::from_le_bytes)?),
            7 => {
                let stored = cursor.take(count, "an array of bools")?;
                Array::Bool(
                    stored
                        .iter()
                        .map(|b| bool_from(*b))
                        .collect::<Result<_>>()?,
                )
            }
            8 => {
                // A string is at least its length, 8 bytes.
                let count = cursor.count(count, 8, "an array of strings")?;
                let mut strings = Vec::with_capacity(count);
                for _ in 0..count {
                    strings.push(cursor.string("a string of an array")?.to_owned());
                }
                Array::Str(strings)
            }
            9 => {
                // An array is at least its element type and its length, 12 bytes.
                let count = cursor.count(count, 12, "an array of arrays")?;
                let mut arrays = Vec::new();
                for _ in 0..count {
                    arrays.push(Array::read(cursor, depth + 1)?);
                }
                Array::Array(arrays)
            }
            10 => Array::U64(numbers(cursor, count, u64::from_le_bytes)?),
            11 => Array::I64(numbers(cursor, count, i64::from_le_bytes)?),
            12 => Array::F64(numbers(cursor, count, f64::from_le_bytes)?),
            id => return Err(unknown_type(id)),
        })
    }

    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Str(v) => v.len(),
            Array::Array(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn element_name(&self) -> &'static str {
        match self {
            Array::U8(_) => "u8",
            Array::I8(_) => "i8",
            Array::U16(_) => "u16",
            Array::I16(_) => "i16",
            Array::U32(_) => "u32",
            Array::I32(_) => "i32",
            Array::U64(_) => "u64",
            Array::I64(_) => "i64",
            Array::F32(_) => "f32",
            Array::F64(_) => "f64",
            Array::Bool(_) => "bool",
            Array::Str(_) => "strings",
            Array::Array(_) => "arrays",
        }
    }
}

fn numbers<T, const N: usize>(
    cursor: &mut Cursor,
    count: u64,
    decode: fn([u8; N]) -> T,
) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(N as u64);
    let (elements, _) = cursor.take(bytes, "an array of numbers")?.as_chunks::<N>();
    Ok(elements.iter().map(|e| decode(*e)).collect())
}

fn bool_from(byte: u8) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WeightsError::Malformed(format!(
            "a metadata bool is stored as {byte}; it must be 0 or 1"
        ))),
    }
}

fn unknown_type(id: u32) -> WeightsError {
    WeightsError::Malformed(format!("unknown metadata type number {id}"))
}
