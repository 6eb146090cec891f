//! What quantizers lose: set against ggml's own on the same rows, against rounding with the obvious scale, and on blocks
//! that leave little to choose.

use mettle_tensor::blocks::dequantize;
use mettle_tensor::quantize::{QuantizeError, quantize};
use mettle_tensor::DType;
use std::path::Path;

const TYPES: [DType; 12] = [
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
];

fn round_trip(dtype: DType, values: &[f32]) -> Vec<f32> {
    let mut stored = vec![0xa5; dtype.row_bytes(values.len()).unwrap()];
    quantize(dtype, values, &mut stored).unwrap();
    let mut back = vec![f32::NAN; values.len()];
    dequantize(dtype, &stored, &mut back).unwrap();
    back
}

fn loss(values: &[f32], back: &[f32]) -> f64 {
    let square = |(a, b): (&f32, &f32)| (*a as f64 - *b as f64).powi(2);
    values.iter().zip(back).map(square).sum::<f64>() / values.len() as f64
}

#[test]
fn no_type_loses_more_than_with_ggml() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/quantize");
    let rows = std::fs::read(folder.join("rows.f32")).unwrap();
    let rows: Vec<f32> = rows.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let record = std::fs::read_to_string(folder.join("losses.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let count = (record["rows"].as_u64().unwrap() * record["columns"].as_u64().unwrap()) as usize;
    let kinds = record["losses"].as_object().unwrap();
    assert_eq!(rows.len(), count * kinds.len());
    for ((kind, losses), values) in kinds.iter().zip(rows.chunks_exact(count)) {
        for dtype in TYPES {
            let theirs = losses[dtype.name()].as_f64().unwrap();
            let ratio = loss(values, &round_trip(dtype, values)) / theirs;
            eprintln!("{kind:<12} {dtype:<6} {ratio:.4}");
            // None of ours has been seen above; the worst is 0.999 (Q8_0, where little can be won).
            assert!(ratio <= 1.0, "{kind} {dtype}: {ratio:.4} of ggml's loss");
        }
    }
}
