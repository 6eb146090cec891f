//! `mettle serve` with a tiny model: the banner, an answer, a signal, the end.

use crate::mettle::{Mettle, fixture};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends the server even where the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_tiny_model_is_served_until_a_signal() {
    let mettle = Mettle::new();
    let model = fixture("llama");
    let mut command = mettle.command(&["serve", &model, "--port", "0", "--api-key", "k"]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut server = Running(child.unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let mut banner = String::new();
    let url = loop {
        let line = lines.next().expect("a banner with a curl line").unwrap();
        banner += &format!("{line}\n");
        if let Some(rest) = line.strip_prefix("try       curl ") {
            break rest.split("/v1").next().unwrap().to_owned();
        }
    };
    for part in [
        "mettle serve llama (llama, ",
        "backend   CPU",
        "memory    weights ",
    ] {
        assert!(banner.contains(part), "{part}: {banner}");
    }
    let answer = ureq::post(format!("{url}/v1/completions"))
        .header("Authorization", "Bearer k")
        .header("Content-Type", "application/json")
        .send(r#"{"model": "llama", "prompt": "hello", "max_tokens": 4, "temperature": 0}"#)
        .unwrap()
        .body_mut()
        .read_to_string()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    let text = answer["choices"][0]["text"].as_str().unwrap();
    let args = ["run", "--raw", "-m", &model, "--max-tokens", "4", "hello"];
    assert_eq!(mettle.succeed(&args), format!("{text}\n"));

    let id = server.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let start = Instant::now();
    let status = loop {
        if let Some(status) = server.0.try_wait().unwrap() {
            break status;
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it does not stop"
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(0));
}
