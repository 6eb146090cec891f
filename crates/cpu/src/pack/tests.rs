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
            DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::IQ4_NL | DType::IQ4_XS => {
                set_half(block, 0);
            }
            DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K | DType::Affine8 => {
                set_half(block, 0);
                set_half(block, 2);
            }
            DType::Zero4 => {
                set_half(block, 0);
                block[2] %= 17;
            }
            DType::Q2_K => {
                set_half(block, 80);
                set_half(block, 82);
            }
            DType::Q3_K => set_half(block, 108),
            DType::Q6_K => set_half(block, 208),
            DType::MXFP4 => block[0] = 120 + block[0] % 8,
            DType::F8 => {
                let scale = (block[0] as f32 - 127.0) / 9000.0 + block[1] as f32 / 70_000.0;
                block[..4].copy_from_slice(&scale.to_le_bytes());
                for byte in &mut block[4..] {
                    // Not NaN.
                    *byte &= !(((*byte & 0x7f == 0x7f) as u8) << 6);
                }
            }
        }
    }
    bytes
}

#[test]
fn no_integer_is_larger_than_its_type_says() {
    for dtype in DType::ALL {
        let largest = with_layout!(dtype, L => {
            // Random blocks, and all bytes the same.
            let blocks = (0..256).map(|value| {
                let mut block = random_blocks(dtype, 1, 11 + value);
                if value % 2 == 0 {
                    block.fill(value as u8);
                }
                block
            });
            let mut largest = 0;
            for block in blocks {
                let mut group = vec![0; L::GROUP_BYTES];
                L::pack(&[&block[..]; PANEL], &mut group);
                for block in group[L::HEADER..].chunks_exact(L::BLOCK_BYTES) {
                    let integers = (0..BLOCK).map(|column| L::integer(block, 3, column).abs());
                    largest = integers.fold(largest, i32::max);
                }
            }
            assert!(largest <= L::LARGEST, "{dtype}: {largest}");
            // Not far too large either: kernels choose by it.
            assert!(2 * largest >= L::LARGEST, "{dtype}: {largest}");
            largest
        }, dense => 1);
        assert!(largest > 0, "{dtype}");
    }
}

#[test]
fn every_type_reads_back_exactly() {
    for dtype in DType::ALL {
        for (rows, blocks_per_row) in [(1, 1), (16, 2), (29, 3)] {
            let columns = blocks_per_row * dtype.block_len();
            let bytes = random_blocks(dtype, rows * blocks_per_row, 7);
            let shape = [rows, columns];
            let view = TensorView {
                dtype,
                shape: &shape,
                bytes: (&bytes).into(),
                order: None,
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

/// A permutation of `count` columns.
pub fn shuffled(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_by_key(|column| column.wrapping_mul(0x9e37_79b9) >> 7);
    order
}

#[test]
fn rows_read_in_the_order_of_the_model() {
    for dtype in DType::ALL {
        let (rows, columns) = (9, 2 * dtype.block_len().max(32));
        let bytes = random_blocks(dtype, rows * columns / dtype.block_len(), 3);
        let (shape, order) = ([rows, columns], shuffled(columns));
        let view = TensorView {
            dtype,
            shape: &shape,
            bytes: (&bytes).into(),
            order: Some(&order),
        };
        let packed = PackedMatrix::pack(view, 1, &mut Shelf::default());
        if dtype == DType::F8 {
            let error = packed.err().unwrap().to_string();
            assert!(
                error.contains("F8 weights with columns in an order"),
                "{error}"
            );
            continue;
        }
        let packed = packed.unwrap();
        let mut stored = vec![0.0; rows * columns];
        blocks::dequantize(dtype, &bytes, &mut stored).unwrap();
        let mut found = vec![f32::NAN; columns];
        for row in 0..rows {
            packed.read_row(row, &mut found);
            for (column, model_column) in order.iter().enumerate() {
                let expected = stored[row * columns + column];
                assert_eq!(found[*model_column as usize], expected, "{dtype} row {row}");
            }
        }
    }
}

#[test]
fn an_order_that_is_none_is_refused() {
    let bytes = random_blocks(DType::Zero4, 2, 3);
    let error = |order: &[u32]| {
        let view = TensorView {
            dtype: DType::Zero4,
            shape: &[2, 32],
            bytes: (&bytes).into(),
            order: Some(order),
        };
        let packed = PackedMatrix::pack(view, 1, &mut Shelf::default());
        packed.err().unwrap().to_string()
    };
    let mut order = shuffled(32);
    assert!(error(&order[1..]).contains("an order of 31 columns for 32"));
    order[4] = order[5];
    assert!(error(&order).contains(&format!("an order with column {} twice", order[5])));
    order[4] = 32;
    assert!(error(&order).contains("column 32 in an order of 32"));
}

#[test]
fn what_is_not_a_number_spoils_its_block_of_f8() {
    let mut bytes = random_blocks(DType::F8, 2, 3);
    bytes[4 + 7] = 0x7f;
    let view = TensorView {
        dtype: DType::F8,
        shape: &[1, 64],
        bytes: (&bytes).into(),
        order: None,
    };
    let packed = PackedMatrix::pack(view, 1, &mut Shelf::default()).unwrap();
    let mut found = vec![0.0; 64];
    packed.read_row(0, &mut found);
    assert!(found[..32].iter().all(|v| v.is_nan()));
    assert!(found[32..].iter().all(|v| v.is_finite()));
}
