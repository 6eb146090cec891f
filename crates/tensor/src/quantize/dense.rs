//! Dense elements: one value a block, rounded to the nearest.

pub fn f32(values: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&values[0].to_le_bytes());
}

pub fn f16(values: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&half::f16::from_f32(values[0]).to_le_bytes());
}

pub fn bf16(values: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&half::bf16::from_f32(values[0]).to_le_bytes());
}
