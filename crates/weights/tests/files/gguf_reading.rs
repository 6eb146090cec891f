//! What goes into a GGUF file comes out again, and the getters say what they miss.

use crate::gguf_builder::GgufBuilder;
use expect_test::{Expect, expect};
use mettle_tensor::{DType, TensorSource};
use mettle_weights::Gguf;
use mettle_weights::gguf::{Array, Value};
use proptest::prelude::*;

/// Supported types and their numbers in the file.
const TYPES: [(u32, DType); 16] = [
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (6, DType::Q5_0),
    (7, DType::Q5_1),
    (8, DType::Q8_0),
    (10, DType::Q2_K),
    (11, DType::Q3_K),
    (12, DType::Q4_K),
    (13, DType::Q5_K),
    (14, DType::Q6_K),
    (20, DType::IQ4_NL),
    (23, DType::IQ4_XS),
    (30, DType::BF16),
    (39, DType::MXFP4),
];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f32>().prop_map(Value::F32),
        any::<f64>().prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::Str),
        array().prop_map(Value::Array),
    ]
}

fn array() -> impl Strategy<Value = Array> {
    use prop::collection::vec;
    let flat = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::U8),
        vec(any::<i8>(), 0..9).prop_map(Array::I8),
        vec(any::<u16>(), 0..9).prop_map(Array::U16),
        vec(any::<i16>(), 0..9).prop_map(Array::I16),
        vec(any::<u32>(), 0..9).prop_map(Array::U32),
        vec(any::<i32>(), 0..9).prop_map(Array::I32),
        vec(any::<u64>(), 0..9).prop_map(Array::U64),
        vec(any::<i64>(), 0..9).prop_map(Array::I64),
        vec(any::<f32>(), 0..9).prop_map(Array::F32),
        vec(any::<f64>(), 0..9).prop_map(Array::F64),
        vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        vec(any::<String>(), 0..9).prop_map(Array::Str),
    ];
    flat.prop_recursive(2, 8, 3, |inner| vec(inner, 0..3).prop_map(Array::Array))
}

/// (type, dimensions outermost first)
fn tensor() -> impl Strategy<Value = (usize, Vec<usize>)> {
    (0..TYPES.len(), prop::collection::vec(1usize..4, 1..5)).prop_map(|(kind, mut shape)| {
        *shape.last_mut().unwrap() *= TYPES[kind].1.block_len();
        (kind, shape)
    })
}

proptest! {
    #[test]
    fn files_round_trip(
        version in 2u32..4,
        values in prop::collection::vec(value(), 0..6),
        tensors in prop::collection::vec(tensor(), 0..6),
        alignment_bits in 0u32..9,
    ) {
        let mut builder = GgufBuilder::new();
        builder.version = version;
        builder.alignment = 1 << alignment_bits;
        let mut builder = builder.key("general.alignment", Value::U32(1 << alignment_bits));
        for (i, value) in values.iter().enumerate() {
            builder = builder.key(&format!("key.{i}"), value.clone());
        }
        for (i, (kind, shape)) in tensors.iter().enumerate() {
            let (type_id, dtype) = TYPES[*kind];
            let bytes = vec![i as u8 + 1; dtype.tensor_bytes(shape).unwrap()];
            let dims: Vec<u64> = shape.iter().rev().map(|d| *d as u64).collect();
            builder = builder.tensor(&format!("t{i}"), &dims, type_id, &bytes);
        }
        let gguf = Gguf::from_bytes(builder.build()).unwrap();
        prop_assert_eq!(gguf.metadata().keys().count(), values.len() + 1);
        for (i, value) in values.iter().enumerate() {
            prop_assert_eq!(gguf.metadata().get(&format!("key.{i}")), Some(value));
        }
        prop_assert_eq!(gguf.tensors().len(), tensors.len());
        for (i, (kind, shape)) in tensors.iter().enumerate() {
            prop_assert_eq!(gguf.find(&format!("t{i}")), Some(i));
            let view = gguf.view(i);
            prop_assert_eq!(view.dtype, TYPES[*kind].1);
            prop_assert_eq!(view.shape, shape.as_slice());
            prop_assert_eq!(view.bytes.len(), view.dtype.tensor_bytes(shape).unwrap());
            prop_assert!(view.bytes.iter().all(|b| *b == i as u8 + 1));
        }
    }
}

fn sample() -> GgufBuilder {
    GgufBuilder::new()
        .key("name", Value::Str("tiny".into()))
        .key("layers", Value::U32(3))
        .key("heads", Value::I8(9))
        .key("below", Value::I32(-1))
        .key("eps", Value::F32(0.5))
        .key("base", Value::F64(10000.0))
        .key("flag", Value::Bool(true))
        .key(
            "tokens",
            Value::Array(Array::Str(vec!["a".into(), "b".into()])),
        )
        .key("types", Value::Array(Array::U8(vec![1, 255])))
        .key("far", Value::Array(Array::U64(vec![u64::MAX])))
        .tensor("w", &[2, 3], 0, &[7; 24])
}

#[test]
fn getters_convert_what_fits() {
    let gguf = Gguf::from_bytes(sample().build()).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require_str("name").unwrap(), "tiny");
    assert_eq!(metadata.get_u64("layers").unwrap(), Some(3));
    assert_eq!(metadata.get_u64("heads").unwrap(), Some(9));
    assert_eq!(metadata.get_f32("eps").unwrap(), Some(0.5));
    assert_eq!(metadata.get_f32("base").unwrap(), Some(10000.0));
    assert_eq!(metadata.get_bool("flag").unwrap(), Some(true));
    assert_eq!(metadata.require_strs("tokens").unwrap(), ["a", "b"]);
    assert_eq!(metadata.get_i64s("types").unwrap(), Some(vec![1, 255]));
    assert_eq!(metadata.get_u64("nothing").unwrap(), None);
}

#[test]
fn getters_name_the_key_and_the_type() {
    let gguf = Gguf::from_bytes(sample().build()).unwrap();
    let metadata = gguf.metadata();
    let check = |error: mettle_weights::WeightsError, expected: Expect| {
        expected.assert_eq(&error.to_string());
    };
    check(
        metadata.require_str("nothing").unwrap_err(),
        expect![[r#"metadata key "nothing" is missing"#]],
    );
    check(
        metadata.get_u64("below").unwrap_err(),
        expect![[
            r#"metadata key "below" should be an integer that is not negative, but it is the i32 -1"#
        ]],
    );
    check(
        metadata.get_u64("name").unwrap_err(),
        expect![[
            r#"metadata key "name" should be an integer that is not negative, but it is a string"#
        ]],
    );
    check(
        metadata.get_f32("layers").unwrap_err(),
        expect![[r#"metadata key "layers" should be a float, but it is the u32 3"#]],
    );
    check(
        metadata.get_str("tokens").unwrap_err(),
        expect![[r#"metadata key "tokens" should be a string, but it is an array of 2 strings"#]],
    );
    check(
        metadata.get_i64s("far").unwrap_err(),
        expect![[
            r#"metadata key "far" should be an array of integers, but it is an array of 1 u64"#
        ]],
    );
    check(
        metadata.get_strs("types").unwrap_err(),
        expect![[
            r#"metadata key "types" should be an array of strings, but it is an array of 2 u8"#
        ]],
    );
    check(
        metadata.get_bool("eps").unwrap_err(),
        expect![[r#"metadata key "eps" should be a bool, but it is the f32 0.5"#]],
    );
}

#[test]
fn a_mapped_file_reads_the_same_after_release() {
    let bytes: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
    let built = GgufBuilder::new()
        .tensor("w", &[100, 100], 0, &bytes)
        .build();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, built).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.view(0).bytes, bytes);
    gguf.release(0);
    assert_eq!(gguf.view(0).bytes, bytes);
}

#[cfg(target_os = "linux")]
#[test]
fn release_gives_the_memory_back() {
    let built = GgufBuilder::new()
        .tensor("w", &[1024, 1024], 0, &vec![3; 4 << 20])
        .build();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, built).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let sum: u64 = gguf.view(0).bytes.iter().map(|b| u64::from(*b)).sum();
    assert_eq!(sum, 3 * (4 << 20));
    assert!(resident_kilobytes(&path) >= 4096);
    gguf.release(0);
    assert!(resident_kilobytes(&path) <= 64);
}

/// What the system holds in memory of this process's map of a file.
#[cfg(target_os = "linux")]
fn resident_kilobytes(path: &std::path::Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = maps.split_once(path.to_str().unwrap()).unwrap().1;
    let line = ours.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
