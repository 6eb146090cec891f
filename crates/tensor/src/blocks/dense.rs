//! Dense elements: one value a block.

pub fn f32(bytes: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
}

pub fn f16(bytes: &[u8], out: &mut [f32]) {
    out[0] = half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
}

pub fn bf16(bytes: &[u8], out: &mut [f32]) {
    out[0] = half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
}
