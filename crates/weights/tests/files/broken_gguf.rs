//! Broken GGUF files: each a clear error, no panic, no large allocation.

use crate::allocation::peak_of;
use crate::gguf_builder::{GgufBuilder, head, put_str};
use expect_test::expect;
use mettle_weights::gguf::{Array, Value};
use mettle_weights::{Gguf, WeightsError};
use proptest::prelude::*;
use std::fmt::Write;

/// What a refusal may hold in memory.
const LARGEST_PEAK: usize = 1 << 20;

fn refusal(bytes: Vec<u8>) -> Option<String> {
    let (opened, peak) = peak_of(|| Gguf::from_bytes(bytes).err());
    assert!(peak < LARGEST_PEAK, "{peak} bytes were allocated");
    opened.map(|error| error.to_string())
}

fn whole() -> GgufBuilder {
    GgufBuilder::new()
        .key("general.architecture", Value::Str("llama".into()))
        .key(
            "tokens",
            Value::Array(Array::Str(vec!["a".into(), "bc".into()])),
        )
        .key("scores", Value::Array(Array::F32(vec![1.0, 2.0])))
        .key("deep", Value::Array(Array::Array(vec![Array::U8(vec![1])])))
        .tensor("norm", &[4], 0, &[1; 16])
        .tensor("weight", &[32, 2], 2, &[2; 36])
}

/// A head that announces one key, then `rest`.
fn one_key(rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = head(3, 0, 1);
    put_str(&mut out, "key");
    rest(&mut out);
    out
}

fn put(out: &mut Vec<u8>, kind: u32, count: u64) {
    out.extend(kind.to_le_bytes());
    out.extend(count.to_le_bytes());
}

fn nested(depth: usize) -> Vec<u8> {
    one_key(|out| {
        out.extend(9u32.to_le_bytes());
        for _ in 0..depth {
            put(out, 9, 1);
        }
        put(out, 0, 0);
    })
}

fn one_tensor(dims: &[u64], type_id: u32) -> Vec<u8> {
    GgufBuilder::new()
        .tensor("w", dims, type_id, &[0; 64])
        .build()
}

fn corpus() -> Vec<(&'static str, Vec<u8>)> {
    let aligned = |value: Value| GgufBuilder::new().key("general.alignment", value).build();
    let two = |name: &str, offset: u64| {
        GgufBuilder::new()
            .tensor("a", &[16], 0, &[0; 64])
            .tensor(name, &[16], 0, &[0; 64])
            .at(offset)
            .build()
    };
    vec![
        ("empty file", vec![]),
        ("wrong magic", b"PK\x03\x04 and more".to_vec()),
        ("ggml magic", b"lmgg\x01\0\0\0".to_vec()),
        ("version 0", head(0, 0, 0)),
        ("version 1", head(1, 0, 0)),
        ("version 4", head(4, 0, 0)),
        ("big endian", head(3u32.swap_bytes(), 0, 0)),
        ("giant tensor count", head(3, u64::MAX, 0)),
        ("large tensor count", head(3, 1 << 40, 0)),
        ("giant key count", head(3, 0, u64::MAX)),
        ("large key count", head(3, 0, 1 << 40)),
        ("key of 2^63 bytes", {
            let mut out = head(3, 0, 1);
            out.extend((1u64 << 63).to_le_bytes());
            out.extend([0; 64]);
            out
        }),
        ("key that is not UTF-8", {
            let mut out = head(3, 0, 1);
            out.extend(2u64.to_le_bytes());
            out.extend([0xff, 0xfe, 0, 0, 0, 0, 1]);
            out
        }),
        ("string of 2^63 bytes", one_key(|out| put(out, 8, 1 << 63))),
        (
            "array of 2^64 - 1 strings",
            one_key(|out| {
                put(out, 9, 8 | u64::MAX << 32);
                out.extend([0xff; 64]);
            }),
        ),
        (
            "array of 2^61 + 1 u64",
            one_key(|out| {
                out.extend(9u32.to_le_bytes());
                put(out, 10, (1 << 61) + 1);
                out.extend([0; 64]);
            }),
        ),
        ("unknown value type", one_key(|out| put(out, 13, 0))),
        (
            "unknown element type",
            one_key(|out| {
                out.extend(9u32.to_le_bytes());
                put(out, 77, 0);
            }),
        ),
        ("bool of 2", one_key(|out| out.extend([7, 0, 0, 0, 2]))),
        ("arrays nested 5 deep", nested(5)),
        ("arrays nested 60000 deep", nested(60_000)),
        (
            "key twice",
            GgufBuilder::new()
                .key("k", Value::U8(1))
                .key("k", Value::U8(2))
                .build(),
        ),
        ("alignment 0", aligned(Value::U32(0))),
        ("alignment 24", aligned(Value::U32(24))),
        ("alignment 2^62", aligned(Value::U64(1 << 62))),
        ("alignment string", aligned(Value::Str("32".into()))),
        (
            "split",
            whole()
                .key("split.count", Value::U16(3))
                .key("split.no", Value::U16(0))
                .key("split.tensors.count", Value::I32(2))
                .build(),
        ),
        (
            "split without numbers",
            whole().key("split.count", Value::U16(3)).build(),
        ),
        (
            "split past the end",
            whole()
                .key("split.count", Value::U16(3))
                .key("split.no", Value::U16(3))
                .key("split.tensors.count", Value::I32(2))
                .build(),
        ),
        ("no dimensions", one_tensor(&[], 0)),
        ("5 dimensions", one_tensor(&[1, 1, 1, 1, 1], 0)),
        ("zero dimension", one_tensor(&[4, 0], 0)),
        ("dims overflow", one_tensor(&[1 << 32, 1 << 32, 1 << 32], 0)),
        ("bytes overflow", one_tensor(&[u64::MAX], 0)),
        ("larger than the file", one_tensor(&[1 << 40], 0)),
        ("half a block", one_tensor(&[33], 2)),
        ("IQ2_S", one_tensor(&[256], 22)),
        ("I32", one_tensor(&[4], 26)),
        ("unknown type", one_tensor(&[4], 4711)),
        ("tensor twice", two("a", 64)),
        ("misaligned offset", two("b", 65)),
        ("offset past the end", two("b", 1 << 20)),
        ("offset 2^64 - 32", two("b", u64::MAX - 31)),
        ("overlap", two("b", 32)),
        ("last byte missing", {
            let mut out = whole().build();
            out.pop();
            out
        }),
    ]
}

#[test]
fn the_corpus_is_refused_with_clear_words() {
    let mut report = String::new();
    for (case, bytes) in corpus() {
        let refused = refusal(bytes).unwrap_or_else(|| panic!("{case} was accepted"));
        writeln!(report, "{case}: {refused}").unwrap();
    }
    expect![[r#"
        empty file: the file ends too early: the magic number at byte 0 needs 4 bytes, 0 are left in the file
        wrong magic: not a GGUF file: it starts with "PK\x03\x04" instead of "GGUF"
        ggml magic: not a GGUF file: it starts with "lmgg" instead of "GGUF"
        version 0: GGUF version 0; versions 2 and 3 can be read
        version 1: GGUF version 1; versions 2 and 3 can be read
        version 4: GGUF version 4; versions 2 and 3 can be read
        big endian: a big-endian GGUF file (version 3); only little-endian files can be read
        giant tensor count: the file ends too early: the tensor table at byte 24 needs 18446744073709551615 bytes, 0 are left in the file
        large tensor count: the file ends too early: the tensor table at byte 24 needs 35184372088832 bytes, 0 are left in the file
        giant key count: the file ends too early: the metadata at byte 24 needs 18446744073709551615 bytes, 0 are left in the file
        large key count: the file ends too early: the metadata at byte 24 needs 14293651161088 bytes, 0 are left in the file
        key of 2^63 bytes: the file ends too early: a metadata key at byte 32 needs 9223372036854775808 bytes, 64 are left in the file
        key that is not UTF-8: a metadata key at byte 32 is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0
        string of 2^63 bytes: metadata key "key": the file ends too early: a metadata string at byte 47 needs 9223372036854775808 bytes, 0 are left in the file
        array of 2^64 - 1 strings: metadata key "key": the file ends too early: an array of strings at byte 51 needs 18446744073709551615 bytes, 60 are left in the file
        array of 2^61 + 1 u64: metadata key "key": the file ends too early: an array of numbers at byte 51 needs 18446744073709551615 bytes, 64 are left in the file
        unknown value type: metadata key "key": unknown metadata type number 13
        unknown element type: metadata key "key": unknown metadata type number 77
        bool of 2: metadata key "key": a metadata bool is stored as 2; it must be 0 or 1
        arrays nested 5 deep: metadata key "key": metadata arrays are nested more than 4 deep at byte 87
        arrays nested 60000 deep: metadata key "key": metadata arrays are nested more than 4 deep at byte 87
        key twice: metadata key "k" occurs twice
        alignment 0: general.alignment is 0; it must be a power of two up to 2097152
        alignment 24: general.alignment is 24; it must be a power of two up to 2097152
        alignment 2^62: general.alignment is 4611686018427387904; it must be a power of two up to 2097152
        alignment string: metadata key "general.alignment" should be an integer that is not negative, but it is a string
        split: part 1 of 3 of a split GGUF model, but the number of parts here is 1
        split without numbers: metadata key "split.no" is missing
        split past the end: split.no is 3, but split.count makes 2 the last
        no dimensions: tensor "w" has 0 dimensions; 1 to 4 are possible
        5 dimensions: tensor "w" has 5 dimensions; 1 to 4 are possible
        zero dimension: tensor "w" has an empty dimension: [4, 0]
        dims overflow: tensor "w" of [4294967296, 4294967296, 4294967296] F32 elements is larger than any memory
        bytes overflow: tensor "w" of [18446744073709551615] F32 elements is larger than any memory
        larger than the file: tensor "w" of 4398046511104 bytes at offset 0 ends outside the file of 128 bytes
        half a block: tensor "w" has rows of 33 elements, which are not whole Q4_0 blocks of 32
        IQ2_S: tensor "w" has type IQ2_S, which is not supported (supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4)
        I32: tensor "w" has type I32, which is not supported (supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4)
        unknown type: tensor "w" has type number 4711, which is not supported (supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4)
        tensor twice: tensor "a" occurs twice
        misaligned offset: tensor "b" starts at offset 65, which is not a multiple of the alignment 32
        offset past the end: tensor "b" of 64 bytes at offset 1048576 ends outside the file of 224 bytes
        offset 2^64 - 32: tensor "b" of 64 bytes at offset 18446744073709551584 ends outside the file of 224 bytes
        overlap: tensor "b" overlaps tensor "a"
        last byte missing: tensor "weight" of 36 bytes at offset 32 ends outside the file of 355 bytes
    "#]].assert_eq(&report);
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let bytes = whole().build();
    assert_eq!(refusal(bytes.clone()), None);
    for end in 0..bytes.len() {
        assert!(refusal(bytes[..end].to_vec()).is_some(), "cut at {end}");
    }
}

#[test]
fn arrays_nested_as_deep_as_allowed_are_read() {
    assert_eq!(refusal(nested(3)), None);
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("loop.gguf");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let report: Vec<String> = [folder.path(), &link, &folder.path().join("none.gguf")]
        .into_iter()
        .map(|path| match Gguf::open(path) {
            Err(error @ (WeightsError::Io { .. } | WeightsError::InFile { .. })) => {
                let text = error
                    .to_string()
                    .replace(&folder.path().display().to_string(), "DIR");
                // The numbers differ between systems, the words do not.
                text.split(" (os error").next().unwrap().to_owned()
            }
            _ => panic!("{} was opened", path.display()),
        })
        .collect();
    expect![[r#"
        DIR: not a regular file
        cannot open DIR/loop.gguf: Too many levels of symbolic links
        cannot open DIR/none.gguf: No such file or directory"#]]
    .assert_eq(&report.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damage_never_panics(damage in prop::collection::vec((0usize..400, any::<u8>()), 1..6)) {
        let mut bytes = whole().build();
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        refusal(bytes);
    }
}
