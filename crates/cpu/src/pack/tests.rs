//! Packing loses nothing: every row reads back exactly as the reference dequantizes the file's bytes.

use super::*;

/// Bytes that are valid blocks of `dtype`: random, with scales made finite.
pub fn random_blocks(dtype: DType, blocks: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..blocks * dtype.block_bytes())
        .map(|_| next() as u8)
        .collect();
    let mut set_half = |bytes: &mut [u8], at: usize| {
        let value = ((next() % 2001) as f32 - 1000.0) / 16_000.0;
        bytes[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        match dtype {
            DType::F32 => {
                let value = (block[0] as f32 - 127.0) / 100.0 + block[1] as f32 / 70_000.0;
                block.copy_from_slice(&value.to_le_bytes());
            }
            DType::F16 => set_half(block, 0),
            DType::BF16 => {
                let value = (block[0] as f32 - 127.0) / 100.0;
                block.copy_from_slice(&half::bf16::from_f32(value).to_le_bytes());
            }
            DType::Q4_0 | DType::Q8_0 => set_half(block, 0),
            DType::Q4_1 | DType::Q4_K => {
                set_half(block, 0);
                set_half(block, 2);
            }
            DType::Q6_K => set_half(block, 208),
        }
    }
    bytes
}

#[test]
fn every_type_reads_back_exactly() {
    for dtype in DType::ALL {
        for (rows, blocks_per_row) in [(1, 1), (8, 2), (13, 3)] {
            let columns = blocks_per_row * dtype.block_len();
            let bytes = random_blocks(dtype, rows * blocks_per_row, 7);
            let shape = [rows, columns];
            let view = TensorView {
                dtype,
                shape: &shape,
                bytes: (&bytes).into(),
            };
            let packed = PackedMatrix::pack(view, 2, &mut Shelf::default()).unwrap();
            let mut expected = vec![0.0; rows * columns];
            blocks::dequantize(dtype, &bytes, &mut expected).unwrap();
            let mut found = vec![f32::NAN; columns];
            for row in 0..rows {
                packed.read_row(row, &mut found);
                assert_eq!(
                    found,
                    expected[row * columns..(row + 1) * columns],
                    "{dtype} row {row}"
                );
            }
        }
    }
}
