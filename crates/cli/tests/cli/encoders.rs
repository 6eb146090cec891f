//! A tiny encoder from the command line: served, looked into, and refused where tokens are wanted.

use crate::mettle::{Mettle, fixture};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// Ends the server even where the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The banner of a server, and its address.
fn serve(mettle: &Mettle, args: &[&str]) -> (Running, String, String) {
    let mut command = mettle.command(args);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut server = Running(child.unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let mut banner = String::new();
    loop {
        let line = lines.next().expect("a banner with a curl line").unwrap();
        banner += &format!("{line}\n");
        if let Some(rest) = line.strip_prefix("try       curl ") {
            let url = rest.split("/v1").next().unwrap().to_owned();
            return (server, banner, url);
        }
    }
}

fn embed(url: &str, body: Value) -> Value {
    let answer = ureq::post(format!("{url}/v1/embeddings"))
        .header("Content-Type", "application/json")
        .send(body.to_string());
    let text = answer.unwrap().body_mut().read_to_string().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Mean and length 1 as its files say, from both formats, with a step that is made long enough.
#[test]
fn a_tiny_encoder_is_served() {
    let mettle = Mettle::new();
    let reference = std::fs::read(fixture("bert/hidden.json")).unwrap();
    let reference: Value = serde_json::from_slice(&reference).unwrap();
    let text = &reference["texts"][3];
    for (model, context) in [("bert", 310), ("bert/model.gguf", 320)] {
        let model = fixture(model);
        let args = [
            "serve",
            &model,
            "--port",
            "0",
            "--max-num-batched-tokens",
            "64",
        ];
        let (_server, banner, url) = serve(&mettle, &args);
        for part in [
            &format!("(bert, {context} tokens of context)") as &str,
            "KV cache 0 B",
            "/v1/embeddings /v1/models",
            r#"-d '{"input""#,
        ] {
            assert!(banner.contains(part), "{part}: {banner}");
        }
        assert!(!banner.contains("/v1/chat"), "{banner}");
        let answer = embed(&url, json!({"input": text["text"]}));
        let found: Vec<f32> =
            serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap();
        let expected: Vec<f32> = serde_json::from_value(text["normalized"].clone()).unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        let long = vec![7; context];
        assert_eq!(
            embed(&url, json!({ "input": long }))["usage"]["prompt_tokens"],
            context
        );
    }
}

#[test]
fn an_encoder_makes_no_tokens() {
    let (mettle, model) = (Mettle::new(), fixture("bert"));
    for args in [
        &["run", "-m", &model, "hi"][..],
        &["run", "--raw", "-m", &model, "hi"],
        &["chat", "-m", &model],
    ] {
        let stderr = mettle.fail(1, args);
        assert_eq!(
            stderr.trim_end(),
            "error: this model only makes embeddings (mettle serve, /v1/embeddings): it cannot choose a token"
        );
    }
    let found = mettle.succeed(&["inspect", &model]);
    assert!(found.contains("0 B KV cache for 310 tokens"), "{found}");
    assert!(
        found.contains("can run here with all its 310 tokens"),
        "{found}"
    );
    let plan = mettle.succeed(&["plan", "-m", &model]);
    assert!(plan.contains("layer_norm"), "{plan}");
}
