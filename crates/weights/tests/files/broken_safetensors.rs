//! Broken safetensors files and folders: each a clear error, no panic, no large allocation.

use crate::allocation::peak_of;
use crate::safetensors_builder::{file, vectors, with_length, write_index};
use expect_test::expect;
use mettle_weights::Safetensors;
use proptest::prelude::*;
use std::fmt::Write;
use std::path::Path;

const LARGEST_PEAK: usize = 1 << 20;

fn refusal(bytes: Vec<u8>) -> Option<String> {
    let (opened, peak) = peak_of(|| Safetensors::from_bytes(bytes, None).err());
    assert!(peak < LARGEST_PEAK, "{peak} bytes were allocated");
    opened.map(|error| error.to_string())
}

fn entry(dtype: &str, shape: &str, begin: i64, end: i64) -> String {
    format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#)
}

fn corpus() -> Vec<(&'static str, Vec<u8>)> {
    let pair = |second: &str| {
        let first = r#""a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}"#;
        file(&format!("{{{first},{second}}}"), 32)
    };
    vec![
        ("empty file", vec![]),
        ("7 bytes", vec![1; 7]),
        ("header length 2^64 - 1", with_length(u64::MAX, "{}", 0)),
        ("header length -2^63", with_length(1 << 63, "{}", 0)),
        ("header over the limit", with_length(100_000_001, "{}", 0)),
        ("header past the end", with_length(3, "{}", 0)),
        ("not JSON", file("hello", 0)),
        ("not UTF-8", {
            let mut out = file("{\"?\":1}", 0);
            out[10] = 0xff;
            out
        }),
        ("a list", file("[]", 0)),
        (
            "nested 60000 deep",
            file(&format!(r#"{{"__metadata__":{}"#, "[".repeat(60_000)), 0),
        ),
        (
            "entry without a shape",
            file(r#"{"w":{"dtype":"F32","data_offsets":[0,4]}}"#, 4),
        ),
        ("negative dimension", file(&entry("F32", "[-1]", 0, 4), 4)),
        (
            "fractional dimension",
            file(&entry("F32", "[1.5]", 0, 4), 4),
        ),
        ("zero dimension", file(&entry("F32", "[3,0]", 0, 0), 0)),
        (
            "9 dimensions",
            file(&entry("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4), 4),
        ),
        (
            "dims overflow",
            file(&entry("F32", "[4294967296,4294967296,4]", 0, 4), 4),
        ),
        ("negative offset", file(&entry("F32", "[1]", -4, 0), 4)),
        ("offsets turned round", file(&entry("F32", "[1]", 4, 0), 4)),
        (
            "offsets of another size",
            file(&entry("F32", "[1]", 0, 8), 8),
        ),
        ("offset past the end", file(&entry("F32", "[2]", 0, 8), 4)),
        ("trailing bytes", file(&entry("F32", "[1]", 0, 4), 5)),
        (
            "gap",
            pair(r#""b":{"dtype":"F32","shape":[3],"data_offsets":[20,32]}"#),
        ),
        (
            "overlap",
            pair(r#""b":{"dtype":"F32","shape":[5],"data_offsets":[12,32]}"#),
        ),
        (
            "tensor twice",
            pair(r#""a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}"#),
        ),
        ("I64", file(&entry("I64", "[1]", 0, 8), 8)),
        ("F8_E4M3", file(&entry("F8_E4M3", "[4]", 0, 4), 4)),
        ("unknown type", file(&entry("F33", "[1]", 0, 4), 4)),
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
        empty file: the file ends too early: the length of the header at byte 0 needs 8 bytes, 0 are left in the file
        7 bytes: the file ends too early: the length of the header at byte 0 needs 8 bytes, 7 are left in the file
        header length 2^64 - 1: not a safetensors file: its header would be 18446744073709551615 bytes long; the limit is 100000000
        header length -2^63: not a safetensors file: its header would be 9223372036854775808 bytes long; the limit is 100000000
        header over the limit: not a safetensors file: its header would be 100000001 bytes long; the limit is 100000000
        header past the end: the file ends too early: the header at byte 8 needs 3 bytes, 2 are left in the file
        not JSON: the header is not valid: expected value at line 1 column 1
        not UTF-8: the header is not valid: invalid unicode code point at line 1 column 3
        a list: the header is not valid: invalid type: sequence, expected an object keyed by tensor names at line 1 column 0
        nested 60000 deep: the header is not valid: EOF while parsing a list at line 1 column 60016
        entry without a shape: the header is not valid: tensor "w": missing field `shape` at line 1 column 41
        negative dimension: the header is not valid: tensor "w": invalid value: integer `-1`, expected u64 at line 1 column 31
        fractional dimension: the header is not valid: tensor "w": invalid type: floating point `1.5`, expected u64 at line 1 column 32
        zero dimension: tensor "w" has an empty dimension: [3, 0]
        9 dimensions: tensor "w" has 9 dimensions; at most 8 are possible
        dims overflow: tensor "w" of [4294967296, 4294967296, 4] F32 elements is larger than any memory
        negative offset: the header is not valid: tensor "w": invalid value: integer `-4`, expected u64 at line 1 column 50
        offsets turned round: tensor "w" of 4 bytes is placed at 4..0; the bytes before it end at 0
        offsets of another size: tensor "w" of 4 bytes is placed at 0..8; the bytes before it end at 0
        offset past the end: tensor "w" ends at byte 8 of the data, but the file holds 4
        trailing bytes: the tensors fill 4 bytes, but the file holds 5 bytes of data
        gap: tensor "b" of 12 bytes is placed at 20..32; the bytes before it end at 16
        overlap: tensor "b" of 20 bytes is placed at 12..32; the bytes before it end at 16
        tensor twice: the header is not valid: "a" occurs twice at line 1 column 58
        I64: tensor "w" has type I64, which is not supported (supported: F32, F16, BF16; F8_E4M3, I32, U32 in quantized models)
        F8_E4M3: tensor "w" has type F8_E4M3, but the config names no quantization
        unknown type: tensor "w" has type F33, which is not supported (supported: F32, F16, BF16; F8_E4M3, I32, U32 in quantized models)
    "#]].assert_eq(&report);
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let bytes = vectors(&["a", "b"]);
    assert_eq!(refusal(bytes.clone()), None);
    for end in 0..bytes.len() {
        assert!(refusal(bytes[..end].to_vec()).is_some(), "cut at {end}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damage_never_panics(damage in prop::collection::vec((0usize..200, any::<u8>()), 1..6)) {
        let mut bytes = vectors(&["a", "b"]);
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        refusal(bytes);
    }
}

type Prepare = fn(&Path);

/// Folders whose index and shards do not fit. Each starts with m.safetensors holding tensors a and b.
const FOLDERS: [(&str, Prepare); 16] = [
    ("nothing but a shard", |_| ()),
    ("path traversal", |f| {
        write_index(f, &[("a", "../m.safetensors")])
    }),
    ("absolute path", |f| {
        write_index(f, &[("a", "/etc/m.safetensors")])
    }),
    ("backslashes", |f| {
        write_index(f, &[("a", "..\\m.safetensors")])
    }),
    ("another kind of file", |f| {
        write_index(f, &[("a", "m.bin")])
    }),
    ("the index itself", |f| {
        write_index(f, &[("a", "model.safetensors.index.json")])
    }),
    ("missing shard", |f| {
        write_index(
            f,
            &[
                ("a", "m.safetensors"),
                ("b", "m.safetensors"),
                ("c", "n.safetensors"),
            ],
        )
    }),
    ("missing tensor", |f| {
        write_index(
            f,
            &[
                ("a", "m.safetensors"),
                ("b", "m.safetensors"),
                ("c", "m.safetensors"),
            ],
        )
    }),
    ("extra tensor", |f| {
        write_index(f, &[("a", "m.safetensors")])
    }),
    ("tensor in two shards", |f| {
        std::fs::write(f.join("n.safetensors"), vectors(&["c", "b"])).unwrap();
        write_index(
            f,
            &[
                ("a", "m.safetensors"),
                ("b", "m.safetensors"),
                ("c", "n.safetensors"),
            ],
        );
    }),
    ("shards exchanged", |f| {
        std::fs::write(f.join("n.safetensors"), vectors(&["c"])).unwrap();
        write_index(
            f,
            &[
                ("a", "n.safetensors"),
                ("b", "m.safetensors"),
                ("c", "m.safetensors"),
            ],
        );
    }),
    ("tensor twice in the index", |f| {
        write_index(f, &[("a", "m.safetensors"), ("a", "m.safetensors")])
    }),
    ("empty index", |f| write_index(f, &[])),
    ("index is a folder", |f| {
        std::fs::create_dir(f.join("model.safetensors.index.json")).unwrap()
    }),
    ("shard is a folder", |f| {
        std::fs::create_dir(f.join("d.safetensors")).unwrap();
        write_index(f, &[("a", "d.safetensors")]);
    }),
    ("shard is a link to itself", |f| {
        let link = f.join("l.safetensors");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        write_index(f, &[("a", "l.safetensors")]);
    }),
];

#[test]
fn folders_that_do_not_fit_are_refused_with_clear_words() {
    let mut report = String::new();
    for (case, prepare) in FOLDERS {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.safetensors"), vectors(&["a", "b"])).unwrap();
        prepare(folder.path());
        let (opened, peak) = peak_of(|| Safetensors::open(folder.path(), None).err());
        let refused = opened
            .unwrap_or_else(|| panic!("{case} was accepted"))
            .to_string();
        assert!(peak < LARGEST_PEAK, "{case}: {peak} bytes were allocated");
        let refused = refused.replace(&folder.path().display().to_string(), "DIR");
        // The numbers differ between systems, the words do not.
        let refused = refused.split(" (os error").next().unwrap();
        writeln!(report, "{case}: {refused}").unwrap();
    }
    expect![[r#"
        nothing but a shard: DIR: the folder holds neither model.safetensors nor model.safetensors.index.json
        path traversal: DIR/model.safetensors.index.json: the index places tensor "a" in "../m.safetensors"; a shard must be a .safetensors file beside the index
        absolute path: DIR/model.safetensors.index.json: the index places tensor "a" in "/etc/m.safetensors"; a shard must be a .safetensors file beside the index
        backslashes: DIR/model.safetensors.index.json: the index places tensor "a" in "..\\m.safetensors"; a shard must be a .safetensors file beside the index
        another kind of file: DIR/model.safetensors.index.json: the index places tensor "a" in "m.bin"; a shard must be a .safetensors file beside the index
        the index itself: DIR/model.safetensors.index.json: the index places tensor "a" in "model.safetensors.index.json"; a shard must be a .safetensors file beside the index
        missing shard: cannot open DIR/n.safetensors: No such file or directory
        missing tensor: DIR/model.safetensors.index.json: the index says that tensor "c" is in "m.safetensors", but it is not there
        extra tensor: DIR/model.safetensors.index.json: shard "m.safetensors" holds tensor "b", but the index does not name it
        tensor in two shards: DIR/n.safetensors: tensor "b" is in an earlier shard too
        shards exchanged: DIR/model.safetensors.index.json: shard "m.safetensors" holds tensor "a", but the index says it is in "n.safetensors"
        tensor twice in the index: DIR/model.safetensors.index.json: the index is not valid: "a" occurs twice at line 1 column 52
        empty index: DIR/model.safetensors.index.json: the index names no tensor
        index is a folder: cannot read DIR/model.safetensors.index.json: Is a directory
        shard is a folder: DIR/d.safetensors: not a regular file
        shard is a link to itself: cannot open DIR/l.safetensors: Too many levels of symbolic links
    "#]].assert_eq(&report);
}
