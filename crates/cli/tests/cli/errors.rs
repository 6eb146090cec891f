//! What is said when something is wrong: one line, the numbers, the way out, the exit code.

use crate::mettle::{Mettle, fixture};
use expect_test::{Expect, expect};

fn check(code: i32, args: &[&str], expected: Expect) {
    let mettle = Mettle::new();
    let home = mettle.home.path();
    std::fs::write(home.join("empty.gguf"), "").unwrap();
    std::fs::write(home.join("text.gguf"), "This is no model.").unwrap();
    std::fs::write(home.join("notes.txt"), "This is no model.").unwrap();
    std::fs::create_dir(home.join("folder")).unwrap();
    let stderr = mettle.fail(code, args);
    assert!(stderr.starts_with("error: "), "{stderr}");
    expected.assert_eq(stderr.trim_end());
}

#[test]
fn models_that_are_none() {
    check(
        1,
        &["run", "-m", "nothing.gguf", "hi"],
        expect![[r#"error: no model "nothing.gguf": there is no such file or folder"#]],
    );
    check(
        1,
        &["run", "-m", "./no/folder", "hi"],
        expect![[r#"error: no model "./no/folder": there is no such file or folder"#]],
    );
    check(
        1,
        &["run", "-m", "empty.gguf", "hi"],
        expect![
            "error: empty.gguf: the file ends too early: the magic number at byte 0 needs 4 bytes, 0 are left in the file"
        ],
    );
    check(
        1,
        &["run", "-m", "text.gguf", "hi"],
        expect![[r#"error: text.gguf: not a GGUF file: it starts with "This" instead of "GGUF""#]],
    );
    check(
        1,
        &["run", "-m", "notes.txt", "hi"],
        expect![[r#"error: notes.txt: not a GGUF file: it starts with "This" instead of "GGUF""#]],
    );
    check(
        1,
        &["run", "-m", "folder", "hi"],
        expect![
            "error: folder is not a model: the folder has neither config.json nor a .gguf file"
        ],
    );
    check(
        1,
        &["run", "-m", "smolm2:135m", "hi"],
        expect![[r#"error: no model "smolm2:135m": did you mean smollm2:135m?"#]],
    );
    check(
        1,
        &["run", "-m", "gpt-7", "hi"],
        expect![[
            r#"error: no model "gpt-7": give a catalogue name (mettle models lists them), a hub id (owner/name), a .gguf file or a folder"#
        ]],
    );
    check(
        1,
        &["pull", "gpt-7"],
        expect![[
            r#"error: no model "gpt-7": give a catalogue name (mettle models lists them), a hub id (owner/name), a .gguf file or a folder"#
        ]],
    );
}

#[test]
fn without_a_network_the_default_model_is_named() {
    check(
        1,
        &["run", "hi"],
        expect![
            "error: smollm2:135m is not in the cache and the network is switched off (METTLE_OFFLINE, HF_HUB_OFFLINE)"
        ],
    );
    check(
        1,
        &["pull", "owner/name"],
        expect![
            "error: owner/name is not in the cache and the network is switched off (METTLE_OFFLINE, HF_HUB_OFFLINE)"
        ],
    );
}

#[test]
fn settings_that_cannot_be_used() {
    let model = fixture("llama");
    let with = |more: &[&str], code: i32, expected: Expect| {
        let args = ["run", "--raw", "-m", &model, "hi"];
        check(code, &[&args, more].concat(), expected);
    };
    with(
        &["--threads", "none"],
        2,
        expect![[r#"error: --threads is "none", it must be a whole number above 0"#]],
    );
    with(
        &["--max-num-batched-tokens", "1000000000000"],
        2,
        expect![[
            r#"error: --max-num-batched-tokens is "1000000000000", it must be a whole number from 1 to 65536"#
        ]],
    );
    with(
        &["--device", "tpu"],
        2,
        expect![[r#"error: --device is "tpu", it must be auto, metal, cuda, cpu or emulator"#]],
    );
    with(
        &["--kv-memory", "1"],
        2,
        expect![
            "error: llama cannot run: the KV cache of 512 tokens needs 492 kB, --kv-memory is 1 B: give more or a shorter --max-model-len"
        ],
    );
    with(
        &["--kv-memory", "100K", "--max-model-len", "512"],
        2,
        expect![
            "error: llama cannot run: the KV cache of 512 tokens needs 492 kB, --kv-memory is 102 kB: give more or a shorter --max-model-len"
        ],
    );
    with(
        &["--max-model-len", "1000000"],
        1,
        expect![
            "error: MODELS/llama: a context of 1000000 tokens was asked for; the model's is 512"
        ],
    );
    with(
        &["--max-model-len", "1"],
        1,
        expect![
            "error: the prompt has 2 tokens and the context holds 1, the answer included: shorten it, or give more --max-model-len or --kv-memory"
        ],
    );
    with(
        &["--disable-pass", "fuse"],
        2,
        expect![[
            r#"error: --disable-pass is "fuse", it must be some of fuse-qkv, fuse-gate-up, residual-epilogue, norm-residual, gather-early"#
        ]],
    );
    check(
        1,
        &["run", "-m", &model, "hi"],
        expect!["error: the model has no chat template; use --raw to send the prompt as it is"],
    );
    check(
        1,
        &["chat", "-m", &model],
        expect![
            "error: llama has no chat template, so it cannot chat; mettle run --raw continues a text"
        ],
    );
}

/// clap writes usage errors; what matters is the code, the place and the reason.
#[test]
fn wrong_usage_ends_with_2() {
    let mettle = Mettle::new();
    for (args, reason) in [
        (vec!["run"], "required arguments"),
        (vec!["run", "hi", "--temperature", "3"], "between 0 and 2"),
        (vec!["run", "hi", "--temperature", "nan"], "between 0 and 2"),
        (vec!["run", "hi", "--top-p", "0"], "above 0 and not above 1"),
        (vec!["run", "hi", "--min-p", "-1"], "between 0 and 1"),
        (vec!["run", "hi", "--repetition-penalty", "0"], "above 0"),
        (vec!["run", "hi", "--max-tokens", "0"], "above 0"),
        (vec!["run", "hi", "--stop", ""], "a value is required"),
        (
            vec!["run", "hi", "--raw", "--system", "x"],
            "cannot be used with",
        ),
        (vec!["plan", "--adapters", "4"], "slots x rank"),
        (vec!["plan", "--tokens", "65537"], "from 1 to 65536"),
        (vec!["plan", "--sequences", "65537"], "from 1 to 65536"),
        (vec!["plan", "--sequences", "0"], "from 1 to 65536"),
        (vec!["fly"], "unrecognized subcommand"),
        (vec!["run", "hi", "--temprature", "1"], "similar argument"),
    ] {
        let stderr = mettle.fail(2, &args);
        assert!(
            stderr.starts_with("error: ") && stderr.contains(reason),
            "{stderr}"
        );
    }
}

#[test]
fn a_taken_port_is_told_before_the_model_is_loaded() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let stderr = Mettle::new().fail(1, &["serve", "no-such-model", "--port", &port]);
    let start =
        format!("error: cannot listen on 127.0.0.1 port {port} (--host and --port choose others)");
    assert!(stderr.starts_with(&start), "{stderr}");
}
