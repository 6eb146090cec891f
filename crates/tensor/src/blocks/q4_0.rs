//! Q4_0: scale d (half), 16 bytes of nibbles. Element i < 16 is the low nibble of byte i, element 16 + i the high one.

use super::half_at;

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, byte) in block[2..18].iter().enumerate() {
        out[i] = d * ((byte & 15) as i32 - 8) as f32;
        out[i + 16] = d * ((byte >> 4) as i32 - 8) as f32;
    }
}
