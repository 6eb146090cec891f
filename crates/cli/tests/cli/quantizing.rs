//! `mettle quantize`: every type gives a file that runs, errors take one line, and an interrupted run leaves nothing.

use crate::mettle::{Mettle, fixture};
use expect_test::{Expect, expect};
use mettle_tensor::{DType, TensorInfo, TensorSource};
use mettle_weights::gguf::{FileType, Gguf, GgufWriter, Value};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The tiny Llama 3.1 grown to rows of 256, so that blocks of 256 fit: its vocabulary and metadata, weights that look random.
/// `attn_output` keeps its rows of 192, which only blocks of 32 fit.
fn write_model(place: &Path, feed_forward: usize) {
    let small = Gguf::open(Path::new(&fixture("llama31/model.gguf"))).unwrap();
    let mut metadata = small.metadata().clone();
    metadata.set("llama.embedding_length", Value::U32(256));
    let width = Value::U32(feed_forward as u32);
    metadata.set("llama.feed_forward_length", width);
    let grown = |tensor: &TensorInfo| TensorInfo {
        shape: tensor
            .shape
            .iter()
            .map(|d| match *d {
                96 => 256,
                112 => feed_forward,
                other => other,
            })
            .collect(),
        ..tensor.clone()
    };
    let tensors: Vec<TensorInfo> = small.tensors().iter().map(grown).collect();
    let mut writer = GgufWriter::create(place, false, &metadata, &tensors).unwrap();
    let mut state = 1u32;
    for (index, tensor) in tensors.iter().enumerate() {
        assert_eq!(tensor.dtype, DType::F32);
        let count: usize = tensor.shape.iter().product();
        let bytes = match tensor.name.as_str() {
            "rope_freqs.weight" => small.view(index).bytes.into_owned(),
            _ => (0..count)
                .flat_map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let uniform = state as f32 / u32::MAX as f32 - 0.5;
                    let value = if tensor.shape.len() == 1 {
                        1.0 + uniform
                    } else {
                        uniform / 2.0
                    };
                    value.to_le_bytes()
                })
                .collect(),
        };
        writer.write(&bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// What stdout says, without the time that it took.
fn quantize(mettle: &Mettle, args: &[&str]) -> String {
    let text = mettle.succeed(&[&["quantize"], args].concat());
    text.trim_end().rsplit_once(", ").unwrap().0.to_owned()
}

fn answer(mettle: &Mettle, model: &str) -> String {
    let flags = ["--raw", "--max-tokens", "6", "--device", "cpu", "abc"];
    mettle.succeed(&[&["run", "-m", model], &flags[..]].concat())
}

#[test]
fn every_type_gives_a_file_that_runs() {
    let mettle = Mettle::new();
    write_model(&mettle.home.path().join("in.gguf"), 256);
    let source = answer(&mettle, "in.gguf");
    let mut lines = Vec::new();
    for file_type in FileType::ALL {
        let (out, name) = (format!("{file_type}.gguf"), file_type.name());
        lines.push(quantize(
            &mettle,
            &["in.gguf", &out, "--type", &name.to_lowercase()],
        ));
        let said = answer(&mettle, &out);
        assert!(!said.trim().is_empty(), "{file_type} says nothing");
        if file_type == FileType::F32 {
            assert_eq!(said, source);
        }
    }
    expect![[r#"
        F32.gguf: F32, 2.91 MB -> 2.91 MB, 32.00 bits a weight
        F16.gguf: F16, 2.91 MB -> 1.46 MB, 16.03 bits a weight
        BF16.gguf: BF16, 2.91 MB -> 1.46 MB, 16.03 bits a weight
        Q8_0.gguf: Q8_0, 2.91 MB -> 776 kB, 8.54 bits a weight
        Q6_K.gguf: Q6_K, 2.91 MB -> 624 kB, 6.87 bits a weight
        Q5_K_M.gguf: Q5_K_M, 2.91 MB -> 530 kB, 5.84 bits a weight
        Q5_K_S.gguf: Q5_K_S, 2.91 MB -> 519 kB, 5.72 bits a weight
        Q4_K_M.gguf: Q4_K_M, 2.91 MB -> 464 kB, 5.12 bits a weight
        Q4_K_S.gguf: Q4_K_S, 2.91 MB -> 447 kB, 4.93 bits a weight
        Q3_K_L.gguf: Q3_K_L, 2.91 MB -> 418 kB, 4.60 bits a weight
        Q3_K_M.gguf: Q3_K_M, 2.91 MB -> 395 kB, 4.35 bits a weight
        Q3_K_S.gguf: Q3_K_S, 2.91 MB -> 357 kB, 3.93 bits a weight
        Q2_K.gguf: Q2_K, 2.91 MB -> 317 kB, 3.49 bits a weight
        Q5_1.gguf: Q5_1, 2.91 MB -> 554 kB, 6.10 bits a weight
        Q5_0.gguf: Q5_0, 2.91 MB -> 513 kB, 5.65 bits a weight
        Q4_1.gguf: Q4_1, 2.91 MB -> 472 kB, 5.20 bits a weight
        Q4_0.gguf: Q4_0, 2.91 MB -> 431 kB, 4.75 bits a weight
        IQ4_NL.gguf: IQ4_NL, 2.91 MB -> 431 kB, 4.75 bits a weight
        IQ4_XS.gguf: IQ4_XS, 2.91 MB -> 414 kB, 4.56 bits a weight"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn what_was_quantized_before_is_noted_once() {
    let mettle = Mettle::new();
    let part = fixture("llama31-split/tiny-00002-of-00003.gguf");
    let outcome = mettle.run(&["quantize", &part, "out.gguf", "--type", "Q4_0"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    expect![[r#"
        12 of 21 tensors are quantized already (the first: blk.0.ffn_gate.weight, Q8_0): they lose something twice; a file of F16 or F32 gives better results
    "#]].assert_eq(&outcome.stderr);
    let dense = mettle.run(&["quantize", &part, "f16.gguf", "--type", "F16"]);
    assert_eq!(
        (dense.code, dense.stderr.as_str()),
        (Some(0), ""),
        "nothing is lost twice"
    );
    assert_eq!(answer(&mettle, "f16.gguf"), answer(&mettle, &part));
}

fn check(args: &[&str], code: i32, expected: Expect) {
    let mettle = Mettle::new();
    let home = mettle.home.path();
    std::fs::write(home.join("text.gguf"), "This is no model.").unwrap();
    std::fs::write(home.join("there.gguf"), "mine").unwrap();
    expected.assert_eq(
        mettle
            .fail(code, &[&["quantize"], args].concat())
            .trim_end(),
    );
    assert_eq!(std::fs::read(home.join("there.gguf")).unwrap(), b"mine");
    assert_eq!(
        std::fs::read_dir(home).unwrap().count(),
        2,
        "something was made"
    );
}

#[test]
fn errors_say_what_is_wrong_in_one_line() {
    let model = fixture("llama31/model.gguf");
    check(
        &[&fixture("llama-bf16"), "out.gguf", "--type", "Q8_0"],
        1,
        expect![
            "error: MODELS/llama-bf16 is a folder: quantize takes a .gguf file, or any part of a split one"
        ],
    );
    check(
        &[
            &fixture("llama-bf16/model.safetensors"),
            "out.gguf",
            "--type",
            "Q8_0",
        ],
        1,
        expect![
            "error: MODELS/llama-bf16/model.safetensors is not a .gguf file; quantize takes nothing else"
        ],
    );
    check(
        &["none.gguf", "out.gguf", "--type", "Q8_0"],
        1,
        expect!["error: none.gguf does not exist: give a .gguf file"],
    );
    check(
        &["text.gguf", "out.gguf", "--type", "Q8_0"],
        1,
        expect![[r#"error: text.gguf: not a GGUF file: it starts with "This" instead of "GGUF""#]],
    );
    check(
        &[&model, "there.gguf", "--type", "Q8_0"],
        1,
        expect!["error: there.gguf exists already; --force replaces it"],
    );
    check(
        &[&model, "out.bin", "--type", "Q8_0"],
        1,
        expect!["error: out.bin does not end in .gguf, which every model file here must"],
    );
    check(
        &[&model, "no/out.gguf", "--type", "Q8_0"],
        1,
        expect!["error: cannot create no/out.gguf.part: No such file or directory (os error 2)"],
    );
    check(
        &[&model, "out.gguf", "--type", "Q8_0", "--threads", "0"],
        2,
        expect![[r#"error: --threads is "0", it must be a whole number above 0"#]],
    );
    let mettle = Mettle::new();
    let stderr = mettle.fail(2, &["quantize", &model, "out.gguf", "--type", "Q9"]);
    assert!(
        stderr.contains("possible values: F32, F16, BF16, Q8_0,"),
        "{stderr}"
    );
}

#[test]
fn force_replaces_even_the_source() {
    let mettle = Mettle::new();
    let place = mettle.home.path().join("model.gguf");
    std::fs::copy(fixture("qwen3/model.gguf"), &place).unwrap();
    quantize(
        &mettle,
        &["model.gguf", "model.gguf", "--type", "Q8_0", "--force"],
    );
    let made = Gguf::open(&place).unwrap();
    let count = made
        .tensors()
        .iter()
        .filter(|t| t.dtype == DType::Q8_0)
        .count();
    assert!(count > 10, "{:?}", made.tensors());
    assert!(!answer(&mettle, "model.gguf").is_empty());
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let mettle = Mettle::new();
    let home = mettle.home.path();
    write_model(&home.join("in.gguf"), 1 << 13);
    let mut child = mettle
        .command(&[
            "quantize",
            "in.gguf",
            "out.gguf",
            "--type",
            "Q4_K_M",
            "--threads",
            "1",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !home.join("out.gguf.part").exists() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "nothing is written"
        );
        assert_eq!(child.try_wait().unwrap(), None, "it ended too early");
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let left: Vec<_> = std::fs::read_dir(home)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["in.gguf"]);
}
