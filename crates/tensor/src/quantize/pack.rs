//! Owns the places of codes inside blocks: what the getters in `blocks` read back.

/// 32 codes of 4 bits into 16 bytes.
pub fn nibbles(codes: &[u8], out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = codes[i] | codes[i + 16] << 4;
    }
}

/// 32 codes of 5 bits: 4 bytes of fifth bits, then nibbles.
pub fn five_bits(codes: &[u8], out: &mut [u8]) {
    let mut low = [0; 32];
    out[..4].fill(0);
    for (i, code) in codes.iter().enumerate() {
        low[i] = code & 15;
        out[i / 8] |= (code >> 4) << (i % 8);
    }
    nibbles(&low, &mut out[4..]);
}

/// The low nibbles of 256 codes into 128 bytes, in the order of Q4_K and Q5_K.
pub fn paired_nibbles(codes: &[u8], out: &mut [u8]) {
    out.fill(0);
    for (i, code) in codes.iter().enumerate() {
        out[i / 64 * 32 + i % 32] |= (code & 15) << (4 * (i / 32 % 2));
    }
}

/// The low bit pairs of 256 codes into 64 bytes, in the order of Q2_K and Q3_K.
pub fn bit_pairs(codes: &[u8], out: &mut [u8]) {
    out.fill(0);
    for (i, code) in codes.iter().enumerate() {
        out[i / 128 * 32 + i % 32] |= (code & 3) << (2 * (i / 32 % 4));
    }
}

/// Bit `bit` of 256 codes into 32 bytes, in the order of Q3_K and Q5_K.
pub fn single_bits(codes: &[u8], bit: u32, out: &mut [u8]) {
    out.fill(0);
    for (i, code) in codes.iter().enumerate() {
        out[i % 32] |= (code >> bit & 1) << (i / 32);
    }
}

/// Eight 6-bit scales and minima into the 12 bytes of Q4_K and Q5_K.
pub fn scales_and_mins(scales: &[u8], mins: &[u8], out: &mut [u8]) {
    for j in 0..4 {
        let high = j + 4;
        out[j] = scales[j] | (scales[high] >> 4) << 6;
        out[j + 4] = mins[j] | (mins[high] >> 4) << 6;
        out[j + 8] = (scales[high] & 15) | (mins[high] & 15) << 4;
    }
}
