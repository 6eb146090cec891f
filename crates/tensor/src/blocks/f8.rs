//! F8: scale (f32), 32 floats of 8 bits (e4m3: no infinities, all ones is NaN). Our own, for FP8 weights.

/// The value of a float of 8 bits.
pub fn e4m3(byte: u8) -> f32 {
    let (exponent, fraction) = (byte >> 3 & 15, byte & 7);
    let size = match (exponent, fraction) {
        (15, 7) => f32::NAN,
        (0, _) => fraction as f32 / 512.0,
        _ => f32::from_bits((exponent as u32 + 120) << 23 | (fraction as u32) << 20),
    };
    if byte < 128 { size } else { -size }
}

pub fn dequantize(block: &[u8], out: &mut [f32]) {
    let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    for (o, byte) in out.iter_mut().zip(&block[4..36]) {
        *o = scale * e4m3(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_ones_are_not_a_number() {
        for byte in 0..=255 {
            assert_eq!(e4m3(byte).is_nan(), byte & 0x7f == 0x7f, "{byte:#x}");
        }
        assert_eq!((e4m3(0x7e), e4m3(0xfe)), (448.0, -448.0));
        assert_eq!(e4m3(0x01), 1.0 / 512.0);
    }
}
