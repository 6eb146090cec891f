//! Owns the byte-level alphabet: the printable character that stands for each byte in a
//! byte-level BPE vocabulary.

use std::sync::LazyLock;

struct Alphabet {
    of_byte: [char; 256],
    /// Indexed by code point; the alphabet ends at U+0143.
    of_char: [Option<u8>; 0x144],
}

static ALPHABET: LazyLock<Alphabet> = LazyLock::new(|| {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut alphabet = Alphabet {
        of_byte: ['\0'; 256],
        of_char: [None; 0x144],
    };
    // Bytes without a printable Latin-1 character take the code points from U+0100 on, in order.
    let mut next_free = 0x100;
    for byte in 0..=255u8 {
        let code = if printable(byte) {
            u32::from(byte)
        } else {
            next_free += 1;
            next_free - 1
        };
        alphabet.of_byte[usize::from(byte)] = char::from_u32(code).expect("below U+0144");
        alphabet.of_char[code as usize] = Some(byte);
    }
    alphabet
});

/// Appends `text`, written in the alphabet, to `out`.
pub(crate) fn write(text: &str, out: &mut String) {
    out.extend(text.bytes().map(|byte| ALPHABET.of_byte[usize::from(byte)]));
}

/// The bytes a vocabulary entry stands for; `None` if a character is outside the alphabet.
pub(crate) fn read(token: &str) -> Option<Vec<u8>> {
    token
        .chars()
        .map(|c| ALPHABET.of_char.get(c as usize).copied().flatten())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255u8 {
            let character = ALPHABET.of_byte[usize::from(byte)];
            assert!(seen.insert(character), "{byte:#x} shares {character:?}");
            assert_eq!(read(&character.to_string()), Some(vec![byte]));
        }
        assert_eq!(seen.iter().max(), Some(&'\u{143}'));
    }

    #[test]
    fn known_characters() {
        let mut out = String::new();
        write(" é\n", &mut out);
        assert_eq!(out, "ĠÃ©Ċ");
        assert_eq!(read("ĠÃ©Ċ"), Some(" é\n".as_bytes().to_vec()));
        assert_eq!(read("▁"), None);
    }
}
