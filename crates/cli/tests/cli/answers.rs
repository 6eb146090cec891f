//! `run`, `chat`, `models`, `pull` and `config` where they succeed.

use crate::mettle::{Mettle, fixture};
use expect_test::expect;
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn folder_and_gguf_file_give_the_same_text_and_nothing_else() {
    let mettle = Mettle::new();
    let run = |model: &str, more: &[&str]| {
        let model = fixture(model);
        let args = ["run", "--raw", "-m", &model, "--max-tokens", "12", "hello"];
        let outcome = mettle.run(&[&args, more].concat());
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        outcome.stdout
    };
    for model in ["llama", "qwen2", "qwen3"] {
        let folder = run(model, &["--kv-cache-dtype", "f32"]);
        let file = run(&format!("{model}/model.gguf"), &["--kv-cache-dtype", "f32"]);
        assert_eq!(folder, file, "{model}");
        assert!(folder.len() > 1 && folder.ends_with('\n'));
        let other = [
            "--kv-cache-dtype",
            "f32",
            "--threads",
            "1",
            "--max-num-batched-tokens",
            "2",
            "--no-prefix-cache",
            "--disable-pass",
            "fuse-qkv",
        ];
        assert_eq!(run(model, &other), folder, "{model}");
    }
}

/// An encoder reads the prompt as it is; there is no template, and none is asked for.
#[test]
fn an_encoder_decoder_answers_a_prompt() {
    let mettle = Mettle::new();
    let run = |model: &str| {
        let model = fixture(model);
        let prompt = "The house of the old man was small.";
        let args = [
            "run",
            "-m",
            &model,
            "--max-tokens",
            "24",
            "--temperature",
            "0",
            prompt,
        ];
        let outcome = mettle.run(&args);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        outcome.stdout
    };
    // As transformers: the first words of its own answer, without a space before them.
    let text = run("t5");
    assert!(text.starts_with("libres libres"), "{text:?}");
    assert_eq!(run("t5/model.gguf"), text);
    assert_eq!(run("t5-gated"), run("t5-gated/model.gguf"));
    let model = fixture("t5");
    let refused = mettle.fail(1, &["perplexity", "-m", &model, &fixture("t5/config.json")]);
    assert!(refused.contains("reads text with an encoder"), "{refused}");
    let refused = mettle.fail(1, &["bench", "latency", "-m", &model]);
    assert!(
        refused.contains("has an encoder and a decoder"),
        "{refused}"
    );
}

#[test]
fn a_prompt_may_come_from_stdin() {
    let mettle = Mettle::new();
    let model = fixture("llama");
    let args = ["run", "--raw", "-m", &model, "--max-tokens", "5"];
    let given = mettle.succeed(&[&args[..], &["hello"]].concat());
    let read = mettle.run_with_stdin(&[&args[..], &["-"]].concat(), "hello");
    assert_eq!(read.stdout, given);
}

#[test]
fn a_seed_repeats_an_answer() {
    let mettle = Mettle::new();
    let model = fixture("llama");
    let run = |seed: &str| {
        let sampling = ["--temperature", "1.5", "--top-k", "50", "--seed", seed];
        let args = ["run", "--raw", "-m", &model, "--max-tokens", "20", "a"];
        mettle.succeed(&[&args[..], &sampling].concat())
    };
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
}

#[test]
fn a_config_alone_runs_with_random_weights() {
    let mettle = Mettle::new();
    let folder = mettle.home.path().join("tiny");
    std::fs::create_dir(&folder).unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture(&format!("llama/{file}")), folder.join(file)).unwrap();
    }
    let run = |model: &str| {
        let args = ["run", "--raw", "-m", model, "--load-format", "dummy"];
        mettle.succeed(&[&args[..], &["--max-tokens", "5", "a"]].concat())
    };
    assert_eq!(run("tiny"), run("tiny/config.json"));
    let error = mettle.fail(1, &["run", "--raw", "-m", "tiny", "a"]);
    assert!(error.starts_with("error: "), "{error}");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mettle = Mettle::new();
    let model = fixture("llama");
    let args = ["run", "--raw", "-m", &model, "--max-tokens", "200", "a"];
    let mut child = mettle
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut one = [0];
    child.stdout.take().unwrap().read_exact(&mut one).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn an_interrupted_answer_ends_with_130() {
    let mettle = Mettle::new();
    let folder = mettle.home.path().join("endless");
    std::fs::create_dir(&folder).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture(&format!("llama/{file}")), folder.join(file)).unwrap();
    }
    // So many layers and so long a context that the signal comes before the end.
    let config = std::fs::read_to_string(fixture("llama/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["num_hidden_layers"] = 100.into();
    config["max_position_embeddings"] = 10_000.into();
    config["eos_token_id"] = serde_json::Value::Null;
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let args = [
        "run",
        "--raw",
        "-m",
        "endless",
        "--load-format",
        "dummy",
        "a",
    ];
    let mut child = mettle
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let id = child.id().to_string();
    let kill = Command::new("kill").args(["-INT", &id]).status();
    assert!(kill.unwrap().success());
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.last(), Some(&b'\n'));
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert_eq!(stderr, "error: interrupted\n");
}

#[test]
fn a_conversation_can_be_piped_in() {
    let mettle = Mettle::new();
    let folder = mettle.home.path().join("chatty");
    std::fs::create_dir(&folder).unwrap();
    for file in std::fs::read_dir(fixture("llama")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
    let lines = "hello\n\n/help\n/nothing\nand you?\n/save talk.json\n/system Be brief\nhi\n/save\n/save brief.json\n/exit\nnever\n";
    let outcome = mettle.run_with_stdin(
        &[
            "chat",
            "-m",
            "chatty",
            "--max-tokens",
            "4",
            "--temperature",
            "0",
        ],
        lines,
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for part in [
        "/clear          forgets",
        "there is no command /nothing; /help lists them",
        "4 messages are in talk.json",
        "error: /save needs the name of a file",
        "3 messages are in brief.json",
    ] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    let talk = std::fs::read_to_string(mettle.home.path().join("talk.json")).unwrap();
    let talk: serde_json::Value = serde_json::from_str(&talk).unwrap();
    assert_eq!(talk[2]["content"], "and you?");
    assert_eq!(talk[3]["role"], "assistant");
    assert!(
        outcome
            .stdout
            .contains(talk[3]["content"].as_str().unwrap())
    );
    // The same template serves `run`, with a system message.
    let said = mettle.succeed(&[
        "run",
        "-m",
        "chatty",
        "--max-tokens",
        "4",
        "--system",
        "x",
        "hi",
    ]);
    assert!(said.ends_with('\n'));
}

#[test]
fn what_is_cached_and_offered_is_listed() {
    expect![[r#"
        NAME                     SIZE  LICENCE     CACHED
        smollm2:135m          98.4 MB  Apache-2.0  no
        smollm2:360m     about 386 MB  Apache-2.0  no
        smollm2:1.7b    about 1.06 GB  Apache-2.0  no
        qwen2.5:0.5b     about 490 MB  Apache-2.0  no
        qwen2.5:1.5b    about 1.12 GB  Apache-2.0  no
        qwen3:0.6b       about 640 MB  Apache-2.0  no
        qwen3:1.7b      about 1.83 GB  Apache-2.0  no
        qwen3:4b        about 2.50 GB  Apache-2.0  no
        qwen3:8b        about 5.03 GB  Apache-2.0  no
        tinyllama:1.1b   about 670 MB  Apache-2.0  no
        llama3.2:1b      about 810 MB  Llama 3.2   no
        llama3.2:3b     about 2.02 GB  Llama 3.2   no
        llama3.1:8b     about 4.92 GB  Llama 3.1   no
        mistral:7b      about 4.37 GB  Apache-2.0  no

        The default is smollm2:135m. mettle pull NAME fetches one; NAME may also be a hub id (owner/name).
    "#]]
    .assert_eq(&Mettle::new().succeed(&["models"]));
}

#[test]
fn settings_are_shown_with_their_origins() {
    let mettle = Mettle::new();
    std::fs::write(mettle.home.path().join("config.toml"), "port = 9000\n").unwrap();
    let text = mettle.succeed(&["config", "--host", "0.0.0.0", "--api-key", "secret"]);
    for line in [
        "threads                  2                            environment METTLE_THREADS",
        "host                     0.0.0.0                      flag --host",
        "port                     9000                         HOME/config.toml:1",
        "api-key                  (set)                        flag --api-key",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json = mettle.succeed(&["config", "--json", "--seed", "7"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["settings"]["seed"]["value"], "7");
    assert_eq!(json["settings"]["seed"]["origin"], "flag --seed");
    assert_eq!(
        json["settings"]["max-model-len"]["value"],
        serde_json::Value::Null
    );
}

#[test]
fn help_has_examples_and_goes_to_stdout() {
    let mettle = Mettle::new();
    for command in ["run", "chat", "pull", "plan", "config", "serve"] {
        let help = mettle.succeed(&[command, "--help"]);
        assert!(help.contains("Examples:"), "{command}");
    }
    assert!(mettle.succeed(&["--help"]).contains("mettle run \"What is"));
}
