//! GGUF files made from others: what is written, that nothing half-made stays, and which type each tensor gets.

use crate::gguf_builder::GgufBuilder;
use mettle_tensor::{DType, TensorSource};
use mettle_weights::gguf::{Array, FileType, Gguf, Requantize, Value};
use mettle_weights::{Metadata, WeightsError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

fn write_with(
    source: &Gguf,
    file_type: FileType,
    threads: usize,
    place: &Path,
) -> Result<(), WeightsError> {
    let work = Requantize {
        source,
        file_type,
        threads,
        cancel: &AtomicBool::new(false),
    };
    work.write(place, false, |_, _, _| {}).map(drop)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries.map(|e| name(e).into_string().unwrap()).collect()
}

/// A matrix of 64 rows of 256 whose element `i` is `value(i)`.
fn matrix(value: impl Fn(usize) -> f32) -> Vec<u8> {
    let values = (0..64 * 256).map(value);
    values.flat_map(f32::to_le_bytes).collect()
}

fn one_matrix(bytes: &[u8]) -> Gguf {
    let built = GgufBuilder::new()
        .key("general.architecture", Value::Str("llama".into()))
        .tensor("blk.0.ffn_up.weight", &[256, 64], 0, bytes);
    Gguf::from_bytes(built.build()).unwrap()
}

#[test]
fn a_file_that_asks_for_no_change_is_copied_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "qwen3"] {
        let path = fixture("models").join(name).join("model.gguf");
        let place = folder.path().join(name);
        write_with(&Gguf::open(&path).unwrap(), FileType::F32, 2, &place).unwrap();
        let (ours, theirs) = (std::fs::read(place).unwrap(), std::fs::read(path).unwrap());
        assert!(
            ours == theirs,
            "{name}: {} and {} bytes",
            ours.len(),
            theirs.len()
        );
    }
}

#[test]
fn metadata_of_every_type_comes_back() {
    let values = [
        Value::U8(250),
        Value::I8(-5),
        Value::U16(65000),
        Value::I16(-300),
        Value::U32(4_000_000_000),
        Value::I32(-70000),
        Value::U64(1 << 60),
        Value::I64(-(1 << 60)),
        Value::F32(0.1),
        Value::F64(-0.1),
        Value::Bool(true),
        Value::Str("zwölf".into()),
        Value::Array(Array::U8(vec![1, 255])),
        Value::Array(Array::I8(vec![-1])),
        Value::Array(Array::U16(vec![65535])),
        Value::Array(Array::I16(vec![-1])),
        Value::Array(Array::U32(vec![7, 1 << 31])),
        Value::Array(Array::I32(vec![-7])),
        Value::Array(Array::U64(vec![1 << 63])),
        Value::Array(Array::I64(vec![-1])),
        Value::Array(Array::F32(vec![1.5])),
        Value::Array(Array::F64(vec![-1.5])),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::Str(vec![String::new(), "a".into()])),
        Value::Array(Array::Array(vec![
            Array::U8(vec![]),
            Array::Bool(vec![true]),
        ])),
    ];
    let mut built = GgufBuilder::new();
    built.alignment = 64;
    built = built.key("general.alignment", Value::U32(64));
    for (i, value) in values.iter().enumerate() {
        built = built.key(&format!("key {i}"), value.clone());
    }
    built = built
        .key("split.count", Value::U16(1))
        .tensor("a.weight", &[3], 0, &[0; 12]);
    built = built.tensor("b.weight", &[2, 2], 1, &[0; 8]);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made.gguf");
    let source = Gguf::from_bytes(built.build()).unwrap();
    write_with(&source, FileType::Q8_0, 1, &place).unwrap();
    let made = Gguf::open(&place).unwrap();
    for (i, value) in values.iter().enumerate() {
        assert_eq!(made.metadata().get(&format!("key {i}")), Some(value));
    }
    let number = |metadata: &Metadata, key: &str| metadata.get_u64(key).unwrap();
    assert_eq!(number(made.metadata(), "general.file_type"), Some(7));
    assert_eq!(
        number(made.metadata(), "general.quantization_version"),
        Some(2)
    );
    assert_eq!(number(made.metadata(), "general.alignment"), Some(64));
    assert_eq!(number(made.metadata(), "split.count"), None);
    let types: Vec<DType> = made.tensors().iter().map(|t| t.dtype).collect();
    assert_eq!(types, [DType::F32, DType::F16], "rows of 2 have no blocks");
}

#[test]
fn threads_change_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let source = one_matrix(&matrix(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0));
    for file_type in [FileType::Q4_K_M, FileType::Q6_K, FileType::IQ4_NL] {
        let made = [1, 2, 5].map(|threads| {
            let place = folder.path().join(format!("{file_type}-{threads}.gguf"));
            write_with(&source, file_type, threads, &place).unwrap();
            std::fs::read(place).unwrap()
        });
        assert!(made[0] == made[1] && made[0] == made[2], "{file_type}");
    }
}

#[test]
fn parts_become_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made.gguf");
    let source = Gguf::open(&fixture("models/llama31-split/tiny-00002-of-00003.gguf")).unwrap();
    write_with(&source, FileType::Q8_0, 2, &place).unwrap();
    let made = Gguf::open(&place).unwrap();
    assert_eq!(made.tensors().len(), source.tensors().len());
    assert!(made.metadata().keys().all(|key| !key.starts_with("split.")));
    for (index, tensor) in source.tensors().iter().enumerate() {
        assert_eq!(made.tensors()[index].name, tensor.name);
        // All of its tensors are of the types that they would get.
        assert_eq!(
            made.view(index).bytes,
            source.view(index).bytes,
            "{}",
            tensor.name
        );
    }
}

#[test]
fn weights_that_are_no_numbers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made.gguf");
    let problem = |bad: &[(usize, f32)], file_type| {
        let bad_or = |i: usize| bad.iter().find(|(at, _)| *at == i).map_or(0.5, |(_, v)| *v);
        let source = one_matrix(&matrix(bad_or));
        let error = write_with(&source, file_type, 3, &place).unwrap_err();
        assert_eq!(names(folder.path()), [""; 0], "something was left behind");
        error.to_string()
    };
    let first = 3 * 256 + 17;
    let bad = [(first, f32::NAN), (first + 1000, f32::INFINITY)];
    let text = "tensor \"blk.0.ffn_up.weight\", row 3, column 17: the weight is NaN";
    for file_type in [FileType::Q4_K_S, FileType::F16, FileType::F32] {
        assert_eq!(problem(&bad, file_type), text);
    }
    assert_eq!(
        problem(&[(first, 1e6)], FileType::F16),
        "tensor \"blk.0.ffn_up.weight\", row 3, column 17: the weight 1000000 is too large for F16"
    );
}

#[test]
fn what_is_there_is_kept_and_what_is_stopped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made.gguf");
    let source = one_matrix(&matrix(|i| i as f32 / 1e4));
    std::fs::write(&place, "mine").unwrap();
    let error = write_with(&source, FileType::Q8_0, 1, &place).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} exists already", place.display())
    );
    assert_eq!(std::fs::read(&place).unwrap(), b"mine");
    let cancel = AtomicBool::new(true);
    let work = Requantize {
        source: &source,
        file_type: FileType::Q8_0,
        threads: 2,
        cancel: &cancel,
    };
    let stopped = work.write(&place, true, |_, _, _| {});
    assert!(matches!(stopped, Err(WeightsError::Cancelled)));
    assert_eq!(names(folder.path()), ["made.gguf"]);
    assert_eq!(std::fs::read(&place).unwrap(), b"mine");
    cancel.store(false, Ordering::Relaxed);
    work.write(&place, true, |_, _, _| {}).unwrap();
    assert_eq!(Gguf::open(&place).unwrap().tensors()[0].dtype, DType::Q8_0);
    assert_eq!(names(folder.path()), ["made.gguf"]);
}

#[test]
fn two_writers_do_not_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made.gguf");
    let part = std::fs::File::create(folder.path().join("made.gguf.part")).unwrap();
    part.try_lock().unwrap();
    let source = one_matrix(&matrix(|_| 0.0));
    let error = write_with(&source, FileType::Q8_0, 1, &place).unwrap_err();
    assert!(
        error.to_string().ends_with("made.gguf.part exists already"),
        "{error}"
    );
    assert_eq!(
        names(folder.path()),
        ["made.gguf.part"],
        "it belongs to another"
    );
    // The other was killed half-way: its lock goes, its bytes stay.
    part.set_len(1 << 20).unwrap();
    drop(part);
    write_with(&source, FileType::Q8_0, 1, &place).unwrap();
    assert_eq!(names(folder.path()), ["made.gguf"]);
    assert!(std::fs::metadata(&place).unwrap().len() < 1 << 20);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_and_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made.gguf");
    std::os::unix::fs::symlink("/dev/full", folder.path().join("made.gguf.part")).unwrap();
    let source = one_matrix(&matrix(|_| 0.0));
    let error = write_with(&source, FileType::Q8_0, 1, &place).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the disk is full: 0 bytes of "), "{text}");
    assert_eq!(names(folder.path()), [""; 0]);
}

/// Every tensor of every kind of file gets the type that llama.cpp gives it.
#[test]
fn mixtures_are_those_of_llama_cpp() {
    let text = std::fs::read_to_string(fixture("quantize/mixtures.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let models = record["models"].as_object().unwrap();
    assert_eq!(models.len(), 9);
    for (model, facts) in models {
        let mut built = GgufBuilder::new().key("general.architecture", Value::Str("llama".into()));
        for (key, value) in facts["metadata"].as_object().unwrap() {
            let value = Value::U32(value.as_u64().unwrap() as u32);
            built = built.key(&format!("llama.{key}"), value);
        }
        for (name, shape) in facts["tensors"].as_object().unwrap() {
            let shape = shape.as_array().unwrap().iter().rev();
            let dims: Vec<u64> = shape.map(|d| d.as_u64().unwrap()).collect();
            let bytes = vec![0; 4 * dims.iter().product::<u64>() as usize];
            built = built.tensor(name, &dims, 0, &bytes);
        }
        let source = Gguf::from_bytes(built.build()).unwrap();
        let kinds = facts["types"].as_object().unwrap();
        // All but F32, which llama.cpp calls by another name.
        assert_eq!(kinds.len(), FileType::ALL.len() - 1);
        for (kind, expected) in kinds {
            let work = Requantize {
                source: &source,
                file_type: FileType::from_name(kind).unwrap(),
                threads: 1,
                cancel: &AtomicBool::new(false),
            };
            let expected = expected.as_str().unwrap().split(' ');
            for (tensor, expected) in work.tensors().unwrap().iter().zip(expected) {
                let (name, chosen) = (&tensor.name, tensor.dtype.name());
                assert_eq!(chosen, expected, "{model}, {kind}: {name}");
            }
        }
    }
}
