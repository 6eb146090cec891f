//! What a MODEL argument means.

use expect_test::expect;
use mettle_weights::download::{DEFAULT_MODEL, Home, Located, list, locate};
use std::fmt::Write;

#[test]
fn arguments_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::discover(Some(folder.path().join("home"))).unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    std::fs::write(model.join("config.json"), "{}").unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for name in ["x.gguf", "model/model.safetensors", "notes.txt"] {
        std::fs::write(folder.path().join(name), "x").unwrap();
    }
    let prefix = folder.path().display().to_string();
    let mut report = String::new();
    for argument in [
        DEFAULT_MODEL,
        "SmolLM2:135M",
        "DIR/x.gguf",
        "DIR/model",
        "DIR/empty",
        "DIR/model/model.safetensors",
        "DIR/notes.txt",
        "DIR",
        "DIR/missing.gguf",
        "./missing.gguf",
        "models/missing.gguf",
        "missing.gguf",
        "../owner/name",
        "owner/name",
        "owner/name:Q4_K_M",
        "Qwen3:0.6B",
        "owner/name:../../x.gguf",
        "smolm2:135m",
        "gpt-9",
        "",
    ] {
        let located = match locate(&argument.replace("DIR", &prefix), &home) {
            Ok(located) => format!("{located:?}"),
            Err(error) => format!("error: {error}"),
        };
        writeln!(report, "{argument}: {}", located.replace(&prefix, "DIR")).unwrap();
    }
    expect![[r#"
        smollm2:135m: NotCached { name: "smollm2:135m", bytes: Some(98362432) }
        SmolLM2:135M: NotCached { name: "smollm2:135m", bytes: Some(98362432) }
        DIR/x.gguf: Path("DIR/x.gguf")
        DIR/model: Path("DIR/model")
        DIR/empty: Path("DIR/empty")
        DIR/model/model.safetensors: Path("DIR/model/model.safetensors")
        DIR/notes.txt: Path("DIR/notes.txt")
        DIR: Path("DIR")
        DIR/missing.gguf: error: no model "DIR/missing.gguf": there is no such file or folder
        ./missing.gguf: error: no model "./missing.gguf": there is no such file or folder
        models/missing.gguf: error: no model "models/missing.gguf": there is no such file or folder
        missing.gguf: error: no model "missing.gguf": there is no such file or folder
        ../owner/name: error: no model "../owner/name": there is no such file or folder
        owner/name: NotCached { name: "owner/name", bytes: None }
        owner/name:Q4_K_M: NotCached { name: "owner/name:Q4_K_M", bytes: None }
        Qwen3:0.6B: NotCached { name: "Qwen/Qwen3-0.6B-GGUF:Q8_0", bytes: None }
        owner/name:../../x.gguf: error: no model "owner/name:../../x.gguf": there is no such file or folder
        smolm2:135m: error: no model "smolm2:135m": did you mean smollm2:135m?
        gpt-9: error: no model "gpt-9": give a catalogue name (mettle models lists them), a hub id (owner/name), a .gguf file or a folder
        : error: no model "": give a catalogue name (mettle models lists them), a hub id (owner/name), a .gguf file or a folder
    "#]].assert_eq(&report);
    assert!(list(&home).unwrap().is_empty());
    assert!(!home.root().exists(), "looking creates nothing");
}

#[test]
fn a_catalogue_file_of_another_size_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::discover(Some(folder.path().to_owned())).unwrap();
    let place = folder.path().join("catalogue/smollm2-135m");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("SmolLM2-135M-Instruct.Q4_1.gguf"), "short").unwrap();
    let located = locate(DEFAULT_MODEL, &home).unwrap();
    assert!(matches!(located, Located::NotCached { .. }), "{located:?}");
}
