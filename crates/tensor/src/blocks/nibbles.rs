//! Owns ggml's order of 32 4-bit values in 16 bytes: columns 0..16 are the low nibbles, columns 16..32 the high ones.

pub fn get(nibbles: &[u8], column: usize) -> u8 {
    match column < 16 {
        true => nibbles[column] & 15,
        false => nibbles[column - 16] >> 4,
    }
}
