//! Every block format against the `gguf` Python package's own dequantization, bit for bit.

use mettle_tensor::{DType, blocks::dequantize};
use std::path::Path;

#[test]
fn dequantization_is_bit_exact() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/blocks");
    for dtype in DType::ALL {
        if dtype == DType::F32 {
            continue;
        }
        let read = |extension: &str| {
            let path = folder.join(format!("{dtype}.{extension}"));
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let blocks = read("bin");
        let expected: Vec<u32> = read("f32")
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        assert!(
            blocks.len() / dtype.block_bytes() >= 16,
            "{dtype}: too few blocks"
        );
        let mut values = vec![0.0; expected.len()];
        dequantize(dtype, &blocks, &mut values).unwrap();
        for (i, (value, expected)) in values.iter().zip(&expected).enumerate() {
            assert_eq!(
                value.to_bits(),
                *expected,
                "{dtype} element {i}: {value} instead of {}",
                f32::from_bits(*expected)
            );
        }
    }
}
