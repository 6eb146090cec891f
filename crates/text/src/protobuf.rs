//! Owns reading the fields of a protobuf message, as far as `tokenizer.model` uses the format.

use crate::TextError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'m> {
    Number(i64),
    Fixed64(u64),
    Bytes(&'m [u8]),
    Fixed32(u32),
}

/// The fields of one message in the order of the file: their numbers and values. Ends at the first error.
pub(crate) struct Fields<'m> {
    rest: &'m [u8],
    length: usize,
}

impl<'m> Fields<'m> {
    pub(crate) fn of(message: &'m [u8]) -> Self {
        Self {
            rest: message,
            length: message.len(),
        }
    }

    fn field(&mut self) -> Option<(u32, Value<'m>)> {
        let key = self.number()? as u64;
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => Value::Fixed64(u64::from_le_bytes(*self.chunk()?)),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                let (bytes, rest) = self.rest.split_at_checked(length)?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Fixed32(u32::from_le_bytes(*self.chunk()?)),
            _ => return None,
        };
        Some((u32::try_from(key >> 3).ok()?, value))
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'m [u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(chunk)
    }

    /// Seven bits a byte, the lowest first; a set high bit means that more follow, ten bytes at most.
    fn number(&mut self) -> Option<i64> {
        let mut number = 0u64;
        for shift in (0..70).step_by(7) {
            let [byte] = *self.chunk::<1>()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Some(number as i64);
            }
        }
        None
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u32, Value<'m>), TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.length - self.rest.len();
        let field = self.field().ok_or_else(|| {
            self.rest = &[];
            TextError::TokenizerModel(format!(
                "a message of {} bytes is damaged at byte {at}",
                self.length
            ))
        });
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, String> {
        let fields: Result<_, _> = Fields::of(message).collect();
        fields.map_err(|error| error.to_string())
    }

    #[test]
    fn fields_of_every_kind() {
        let minus_one = [0x50, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(read(&minus_one).unwrap(), [(10, Value::Number(-1))]);
        let several = b"\x08\xac\x02\x12\x02hi\x1d\0\0\x80\x3f\x21\x01\0\0\0\0\0\0\0";
        assert_eq!(
            read(several).unwrap(),
            [
                (1, Value::Number(300)),
                (2, Value::Bytes(b"hi")),
                (3, Value::Fixed32(1.0f32.to_bits())),
                (4, Value::Fixed64(1))
            ]
        );
        assert_eq!(read(b"").unwrap(), []);
    }

    #[test]
    fn damage_is_an_error_with_its_place() {
        let cases: [&[u8]; 6] = [
            b"\x08",
            b"\x12\x05hi",
            b"\x1d\0",
            b"\x0b",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ];
        for case in cases {
            let error = read(case).unwrap_err();
            assert!(error.contains("damaged at byte 0"), "{case:?}: {error}");
        }
        assert!(read(b"\x08\x01\x08").unwrap_err().contains("at byte 2"));
    }
}
