//! Owns the check of a precompiled character map: a trie from byte sequences to places in a list of replacements. The
//! library that applies it trusts every index in it, so a damaged one must be found here.

use crate::TextError;

/// An error unless every state that a text can reach lies inside the trie, and every replacement inside the list.
pub(crate) fn check(charsmap: &[u8]) -> Result<(), TextError> {
    let broken = |why: String| {
        TextError::BrokenVocabulary(format!(
            "the character map of {} bytes {why}",
            charsmap.len()
        ))
    };
    let Some((size, rest)) = charsmap.split_first_chunk::<4>() else {
        return Err(broken("is too short".to_owned()));
    };
    let size = u32::from_le_bytes(*size) as usize;
    let Some((trie, replacements)) = rest.split_at_checked(size) else {
        return Err(broken(format!("announces a trie of {size} bytes")));
    };
    let (units, odd) = trie.as_chunks::<4>();
    if !odd.is_empty() || units.is_empty() {
        return Err(broken(format!("has a trie of {size} bytes")));
    }
    let replacements = std::str::from_utf8(replacements)
        .map_err(|error| broken(format!("is not UTF-8 after its trie: {error}")))?;
    let trie = Trie(units.iter().map(|unit| u32::from_le_bytes(*unit)).collect());
    trie.check(replacements).map_err(broken)
}

/// A double array: the unit of a child is found at its parent's state XOR the byte between them.
struct Trie(Vec<u32>);

impl Trie {
    fn check(&self, replacements: &str) -> Result<(), String> {
        let units = self.0.len();
        let mut seen = vec![false; units];
        let mut open = vec![offset(self.0[0])];
        while let Some(state) = open.pop() {
            // Any byte may be looked up here, whether the state has a child for it or not.
            if state | 0xff >= units {
                return Err(format!("leads to unit {}, it has {units}", state | 0xff));
            }
            if std::mem::replace(&mut seen[state], true) {
                continue;
            }
            for byte in 1..=0xff {
                let child = self.0[state ^ byte];
                if child & LABEL != byte as u32 {
                    continue;
                }
                let next = state ^ byte ^ offset(child);
                open.push(next);
                if child & HAS_VALUE != 0 {
                    let value = self.0.get(next).map(|unit| (unit & !SIGN) as usize);
                    if value.is_none_or(|value| !replacements.is_char_boundary(value)) {
                        let length = replacements.len();
                        return Err(format!("names replacement {value:?} of {length} bytes"));
                    }
                }
            }
        }
        Ok(())
    }
}

const SIGN: u32 = 1 << 31;
const LABEL: u32 = SIGN | 0xff;
const HAS_VALUE: u32 = 1 << 8;

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize
}

/// The bytes of standard base64, as `tokenizer.json` writes a map.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One rule, `a` to `b`: the root's state is 0, the child for `a` at 0x61 has a value at its state, 0x100.
    fn map(state: u32, value: u32, replacements: &[u8]) -> Vec<u8> {
        let mut units = vec![0u32; 512];
        units[0x61] = ((state ^ 0x61) << 10) | HAS_VALUE | 0x61;
        units[0x100] = SIGN | value;
        let mut bytes = 2048u32.to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(replacements);
        bytes
    }

    #[test]
    fn a_whole_map_passes() {
        check(&map(0x100, 2, b"x\0b\0")).unwrap();
    }

    #[test]
    fn damage_is_named() {
        let error = |map: &[u8]| check(map).unwrap_err().to_string();
        assert!(error(b"abc").contains("3 bytes is too short"));
        assert!(error(&map(0x100, 2, b"")[..100]).contains("announces a trie of 2048 bytes"));
        assert!(error(&[0; 4]).contains("trie of 0 bytes"));
        assert!(error(&map(0x100, 2, b"x\0\xff")).contains("UTF-8"));
        assert!(error(&map(0x100, 9, b"x\0b\0")).contains("replacement Some(9) of 4 bytes"));
        assert!(error(&map(0x100, 1, "é".as_bytes())).contains("replacement Some(1)"));
        assert!(error(&map(0x4000, 2, b"x\0b\0")).contains("replacement None"));
        assert!(error(&map(0x4000, 2, b"x\0b\0")).contains("bytes"));
    }

    #[test]
    fn base64() {
        assert_eq!(from_base64("AP9hYg==").unwrap(), b"\0\xffab");
        assert_eq!(from_base64("YWJj").unwrap(), b"abc");
        assert_eq!(from_base64("YW Jj"), None);
    }
}
