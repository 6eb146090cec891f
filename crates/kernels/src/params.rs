//! Owns the byte layout of a kernel's params struct, and the packing of values into it by field name.

use crate::error::BindingError;

/// A scalar that a params struct may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    U32(u32),
    I32(i32),
    F32(f32),
    U64(u64),
}

impl Scalar {
    const fn type_name(self) -> &'static str {
        match self {
            Scalar::U32(_) => "uint",
            Scalar::I32(_) => "int",
            Scalar::F32(_) => "float",
            Scalar::U64(_) => "ulong",
        }
    }

    fn write(self, out: &mut [u8]) {
        match self {
            Scalar::U32(v) => out[..4].copy_from_slice(&v.to_le_bytes()),
            Scalar::I32(v) => out[..4].copy_from_slice(&v.to_le_bytes()),
            Scalar::F32(v) => out[..4].copy_from_slice(&v.to_le_bytes()),
            Scalar::U64(v) => out[..8].copy_from_slice(&v.to_le_bytes()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub type_name: &'static str,
    pub offset: usize,
}

/// A params struct as Metal lays it out: natural alignment, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamsLayout {
    pub name: String,
    pub fields: Vec<Field>,
    pub bytes: usize,
}

/// The types a params field may have, with their sizes.
const FIELD_TYPES: [(&str, usize); 4] = [("uint", 4), ("int", 4), ("float", 4), ("ulong", 8)];

impl ParamsLayout {
    /// Lays out fields given as (type, name); the error is the type that a params struct may not hold.
    pub fn new(name: &str, fields: &[(String, String)]) -> Result<ParamsLayout, String> {
        let mut layout = ParamsLayout {
            name: name.to_string(),
            ..ParamsLayout::default()
        };
        let mut alignment = 1;
        for (type_text, name) in fields {
            let &(type_name, size) = FIELD_TYPES
                .iter()
                .find(|(known, _)| known == type_text)
                .ok_or_else(|| type_text.clone())?;
            let offset = layout.bytes.next_multiple_of(size);
            alignment = alignment.max(size);
            layout.bytes = offset + size;
            layout.fields.push(Field {
                name: name.clone(),
                type_name,
                offset,
            });
        }
        layout.bytes = layout.bytes.next_multiple_of(alignment);
        Ok(layout)
    }

    /// The struct's bytes; every field must be given, once, with its own type.
    pub fn pack(&self, values: &[(&str, Scalar)]) -> Result<Vec<u8>, BindingError> {
        let mut bytes = vec![0; self.bytes];
        self.pack_into(values, &mut bytes)?;
        Ok(bytes)
    }

    /// The same without an allocation, into exactly `self.bytes` bytes.
    pub fn pack_into(&self, values: &[(&str, Scalar)], out: &mut [u8]) -> Result<(), BindingError> {
        assert_eq!(out.len(), self.bytes, "{}: bytes of params", self.name);
        // What lies between fields is zero, so that equal params have equal bytes.
        out.fill(0);
        for &(name, value) in values {
            let field = self.fields.iter().find(|f| f.name == name).ok_or_else(|| {
                BindingError::UnknownField {
                    kernel: self.name.clone(),
                    name: name.to_string(),
                }
            })?;
            if field.type_name != value.type_name() {
                return Err(BindingError::FieldType {
                    kernel: self.name.clone(),
                    name: name.to_string(),
                    wanted: field.type_name,
                    given: value.type_name(),
                });
            }
            value.write(&mut out[field.offset..]);
        }
        let given = |field: &&Field| !values.iter().any(|(name, _)| *name == field.name);
        match self.fields.iter().find(given) {
            Some(field) => Err(BindingError::FieldMissing {
                kernel: self.name.clone(),
                name: field.name.clone(),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(fields: &[(&str, &str)]) -> ParamsLayout {
        let fields: Vec<_> = fields
            .iter()
            .map(|(t, n)| (t.to_string(), n.to_string()))
            .collect();
        ParamsLayout::new("P", &fields).unwrap()
    }

    #[test]
    fn fields_lie_at_their_natural_alignment() {
        let layout = layout(&[("uint", "a"), ("ulong", "b"), ("float", "c")]);
        let offsets: Vec<_> = layout.fields.iter().map(|f| f.offset).collect();
        assert_eq!((offsets, layout.bytes), (vec![0, 8, 16], 24));
    }

    #[test]
    fn values_go_by_name_and_type() {
        let layout = layout(&[("uint", "n"), ("float", "eps")]);
        let bytes = layout
            .pack(&[("eps", Scalar::F32(1.0)), ("n", Scalar::U32(7))])
            .unwrap();
        assert_eq!(bytes, [7, 0, 0, 0, 0, 0, 0x80, 0x3f]);
        let error = |values: &[(&str, Scalar)]| layout.pack(values).unwrap_err().to_string();
        assert_eq!(
            error(&[("n", Scalar::U32(1))]),
            "P: the params field `eps` is given no value"
        );
        assert_eq!(
            error(&[("n", Scalar::F32(1.0))]),
            "P: the params field `n` is a uint, the host gives a float"
        );
        assert_eq!(
            error(&[("m", Scalar::U32(1))]),
            "P has no parameter `m` in its params"
        );
    }
}
