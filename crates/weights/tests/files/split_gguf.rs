//! Split GGUF models: opened from any part, and every way in which parts do not belong together refused.

use crate::gguf_builder::GgufBuilder;
use expect_test::expect;
use mettle_tensor::TensorSource;
use mettle_weights::Gguf;
use mettle_weights::gguf::Value;
use proptest::prelude::*;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A part with one tensor of four elements whose bytes are all `number + 1`.
fn part(number: u16, count: u16, tensors: i32) -> GgufBuilder {
    let builder = match number {
        0 => GgufBuilder::new().key("general.architecture", Value::Str("llama".into())),
        _ => GgufBuilder::new(),
    };
    builder
        .key("split.no", Value::U16(number))
        .key("split.count", Value::U16(count))
        .key("split.tensors.count", Value::I32(tensors))
        .tensor(&format!("t{number}"), &[4], 0, &[number as u8 + 1; 16])
}

fn path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("m-{number:05}-of-00003.gguf"))
}

fn write_three(folder: &Path) {
    for number in 0..3 {
        let file = part(number, 3, 3).build();
        std::fs::write(path(folder, number as usize + 1), file).unwrap();
    }
}

fn parts() -> Vec<Vec<u8>> {
    (0..3).map(|number| part(number, 3, 3).build()).collect()
}

#[test]
fn any_part_opens_all() {
    let folder = tempfile::tempdir().unwrap();
    write_three(folder.path());
    for number in 1..=3 {
        let gguf = Gguf::open(&path(folder.path(), number)).unwrap();
        let names: Vec<&str> = gguf.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["t0", "t1", "t2"]);
        for tensor in 0..3 {
            gguf.release(tensor);
            assert_eq!(*gguf.view(tensor).bytes, [tensor as u8 + 1; 16]);
        }
        assert_eq!(gguf.find("t2"), Some(2));
        let architecture = gguf.metadata().require_str("general.architecture");
        assert_eq!(architecture.unwrap(), "llama");
    }
    assert_eq!(Gguf::from_parts(parts()).unwrap().tensors().len(), 3);
}

#[test]
fn a_first_part_may_hold_metadata_alone() {
    let mut first = part(0, 2, 1);
    first.tensors.clear();
    let opened = Gguf::from_parts(vec![first.build(), part(1, 2, 1).build()]).unwrap();
    assert_eq!(*opened.view(0).bytes, [2; 16]);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    type Change = fn(&Path);
    let cases: [(&str, Change); 10] = [
        ("missing", |dir| std::fs::remove_file(path(dir, 3)).unwrap()),
        ("renamed", |dir| {
            std::fs::rename(path(dir, 2), dir.join("m.gguf")).unwrap()
        }),
        ("swapped", |dir| {
            std::fs::copy(path(dir, 2), path(dir, 1)).unwrap();
        }),
        ("twice", |dir| {
            std::fs::copy(path(dir, 2), path(dir, 3)).unwrap();
        }),
        ("whole file", |dir| {
            let whole = GgufBuilder::new().tensor("t2", &[4], 0, &[0; 16]);
            std::fs::write(path(dir, 3), whole.build()).unwrap();
        }),
        ("of another count", |dir| {
            std::fs::write(path(dir, 3), part(2, 4, 3).build()).unwrap();
        }),
        ("of another model", |dir| {
            std::fs::write(path(dir, 3), part(2, 3, 9).build()).unwrap();
        }),
        ("of another architecture", |dir| {
            let other = part(2, 3, 3).key("general.architecture", Value::Str("qwen2".into()));
            std::fs::write(path(dir, 3), other.build()).unwrap();
        }),
        ("tensor in two parts", |dir| {
            let mut other = part(2, 3, 3);
            other.tensors[0].name = "t0".into();
            std::fs::write(path(dir, 3), other.build()).unwrap();
        }),
        ("tensor missing", |dir| {
            let mut other = part(2, 3, 3);
            other.tensors.clear();
            std::fs::write(path(dir, 3), other.build()).unwrap();
        }),
    ];
    let mut report = String::new();
    for (case, change) in cases {
        let folder = tempfile::tempdir().unwrap();
        write_three(folder.path());
        change(folder.path());
        for name in ["m-00001-of-00003.gguf", "m.gguf"] {
            let path = folder.path().join(name);
            if !path.exists() {
                continue;
            }
            let error = Gguf::open(&path).err().unwrap_or_else(|| panic!("{case}"));
            let text = error.to_string();
            let text = text.replace(&folder.path().display().to_string(), "DIR");
            writeln!(report, "{case}: {text}").unwrap();
        }
    }
    expect![[r#"
        missing: part 3 of 3 of the model is missing: DIR/m-00003-of-00003.gguf
        renamed: part 2 of 3 of the model is missing: DIR/m-00002-of-00003.gguf
        renamed: DIR/m.gguf: part 2 of 3 of a split GGUF model, but it is not called NAME-00002-of-00003.gguf, so the other parts cannot be found
        swapped: DIR/m-00001-of-00003.gguf: its name says part 1 of 3, but inside it is part 2 of 3
        twice: DIR/m-00003-of-00003.gguf: part 2 of 3 of a model with 3 tensors, but part 3 of 3 of a model with 3 belongs here
        whole file: DIR/m-00003-of-00003.gguf: a whole GGUF file, but part 3 of 3 belongs here
        of another count: DIR/m-00003-of-00003.gguf: part 3 of 4 of a model with 3 tensors, but part 3 of 3 of a model with 3 belongs here
        of another model: DIR/m-00003-of-00003.gguf: part 3 of 3 of a model with 9 tensors, but part 3 of 3 of a model with 3 belongs here
        of another architecture: DIR/m-00003-of-00003.gguf: a part of another model: general.architecture is "qwen2" here and "llama" in the first part
        tensor in two parts: DIR/m-00001-of-00003.gguf: tensor "t0" is in part 1 and in part 3
        tensor missing: DIR/m-00001-of-00003.gguf: the 3 parts hold 2 tensors, but split.tensors.count is 3
    "#]].assert_eq(&report);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn damage_never_panics(
        damage in prop::collection::vec((0usize..3, 0usize..400, any::<u8>()), 1..6),
        kept in 0usize..4,
    ) {
        let mut parts = parts();
        for (part, at, byte) in damage {
            let at = at % parts[part].len();
            parts[part][at] = byte;
        }
        parts.truncate(kept);
        if let Ok(gguf) = Gguf::from_parts(parts) {
            for index in 0..gguf.tensors().len() {
                let view = gguf.view(index);
                prop_assert_eq!(Some(view.bytes.len()), view.dtype.tensor_bytes(view.shape));
            }
        }
    }
}
