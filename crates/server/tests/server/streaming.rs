//! Streams: the same answer as without one, event by event as it is made, and nothing left behind when nobody reads.

use crate::client::{PATIENCE, connect, receive, send};
use crate::server::{Server, Setup};
use mettle_engine::mock::MockStep;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const JSON: &str = "Content-Type: application/json\r\n";

fn concat(chunks: &[Value], index: usize, field: impl Fn(&Value) -> &Value) -> String {
    let choices = chunks.iter().flat_map(|c| c["choices"].as_array().unwrap());
    let of = choices.filter(|choice| choice["index"] == index);
    of.filter_map(|choice| field(choice).as_str()).collect()
}

fn several() -> Server {
    Server::with(Setup {
        max_sequences: 4,
        ..Setup::default()
    })
}

#[test]
fn a_streamed_chat_is_the_whole_one_in_parts() {
    let server = several();
    let body = json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "n": 3, "seed": 1,
        "temperature": 1.2, "logprobs": true, "top_logprobs": 1, "return_token_ids": true,
    });
    let whole = server.chat(body.clone());
    let chunks = server.chunks(CHAT, body);
    let id = &chunks[0]["id"];
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(&chunk["id"], id);
        assert_eq!(chunk["usage"], Value::Null);
    }
    for index in 0..3 {
        let opening = &chunks[index]["choices"][0];
        assert_eq!(opening["index"], index);
        assert_eq!(
            opening["delta"],
            json!({"role": "assistant", "content": ""})
        );
        let choice = &whole["choices"][index];
        let text = concat(&chunks, index, |c| &c["delta"]["content"]);
        assert_eq!(text, choice["message"]["content"]);
        let reason = concat(&chunks, index, |c| &c["finish_reason"]);
        assert_eq!(reason, choice["finish_reason"]);
        let all = |field: &dyn Fn(&Value) -> Value| -> Vec<Value> {
            let choices = chunks.iter().flat_map(|c| c["choices"].as_array().unwrap());
            let of = choices.filter(|choice| choice["index"] == index);
            of.flat_map(|c| field(c).as_array().cloned().unwrap_or_default())
                .collect()
        };
        assert_eq!(
            Value::from(all(&|c| c["token_ids"].clone())),
            choice["token_ids"]
        );
        let scored = all(&|c| c["logprobs"]["content"].clone());
        assert_eq!(Value::from(scored), choice["logprobs"]["content"]);
    }
    assert_eq!(chunks[0]["prompt_token_ids"], whole["prompt_token_ids"]);
}

#[test]
fn a_streamed_completion_is_the_whole_one_in_parts() {
    let server = several();
    for extra in [
        json!({}),
        json!({"echo": true, "logprobs": 1}),
        json!({"echo": true, "max_tokens": 0, "logprobs": 0}),
        json!({"stop": ["e", "o"], "include_stop_str_in_output": true}),
    ] {
        let mut body = json!({
            "prompt": ["one", "two"], "max_tokens": 12, "n": 2, "seed": 5, "temperature": 1.0,
            "return_token_ids": true,
        });
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let whole = server.complete(body.clone());
        let chunks = server.chunks(COMPLETIONS, body.clone());
        for index in 0..4 {
            let choice = &whole["choices"][index];
            assert_eq!(
                concat(&chunks, index, |c| &c["text"]),
                choice["text"],
                "{body}"
            );
            assert_eq!(
                concat(&chunks, index, |c| &c["finish_reason"]),
                choice["finish_reason"]
            );
            for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let choices = chunks.iter().flat_map(|c| c["choices"].as_array().unwrap());
                let of = choices.filter(|choice| choice["index"] == index);
                let all: Vec<Value> = of
                    .flat_map(|c| c["logprobs"][list].as_array().cloned().unwrap_or_default())
                    .collect();
                let expected = choice["logprobs"][list]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                assert_eq!(all, expected, "{body} {list}");
            }
        }
    }
}

#[test]
fn usage_comes_last_or_in_every_chunk() {
    let server = Server::start();
    let body =
        json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "temperature": 0});
    let usage = server.chat(body.clone())["usage"].clone();
    for (path, fields) in [
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "hi"}]}),
        ),
        (COMPLETIONS, json!({"prompt": "user:hi;assistant:"})),
    ] {
        let mut body = body.clone();
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        body["stream_options"] = json!({"include_usage": true});
        let chunks = server.chunks(path, body.clone());
        let (last, others) = chunks.split_last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["total_tokens"], usage["total_tokens"]);
        assert!(others.iter().all(|chunk| chunk["usage"].is_null()));
        body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
        let chunks = server.chunks(path, body);
        let counts = chunks
            .iter()
            .map(|c| c["usage"]["completion_tokens"].as_u64().unwrap());
        assert!(counts.is_sorted());
    }
}

/// Steps that wait for a while, so that a stream can be watched.
fn slow(step: u64) -> Server {
    Server::with(Setup {
        hook: Box::new(move |_| {
            std::thread::sleep(Duration::from_millis(step));
            MockStep::Run
        }),
        ..Setup::default()
    })
}

fn begin(server: &Server, path: &str, max_tokens: usize) -> std::net::TcpStream {
    let mut body = json!({
        "stream": true, "max_tokens": max_tokens, "max_output_tokens": max_tokens, "temperature": 0,
    });
    match path {
        COMPLETIONS => body["prompt"] = "hi".into(),
        "/v1/responses" => body["input"] = "hi".into(),
        _ => body["messages"] = json!([{"role": "user", "content": "hi"}]),
    }
    send(
        server.address,
        "POST",
        path,
        JSON,
        body.to_string().as_bytes(),
    )
}

#[test]
fn tokens_leave_when_they_are_made() {
    let server = slow(100);
    let start = Instant::now();
    let mut stream = begin(&server, COMPLETIONS, 20);
    let (mut seen, mut buffer) = (String::new(), [0; 1024]);
    while !seen.contains("data:") {
        let count = stream.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    let first = start.elapsed();
    assert!(first < Duration::from_millis(1000), "{first:?}");
    drop(stream);
    server.wait_until_idle();
}

#[test]
fn a_reader_that_leaves_at_any_stage_aborts() {
    let server = slow(5);
    for path in [CHAT, COMPLETIONS, "/v1/messages", "/v1/responses"] {
        for wait in [0, 3, 20, 60] {
            let before = server.engine.stats().generated_tokens;
            let stream = begin(&server, path, 200);
            std::thread::sleep(Duration::from_millis(wait));
            drop(stream);
            server.wait_until_idle();
            let made = server.engine.stats().generated_tokens - before;
            assert!(
                made < 150,
                "{path} {wait}: {made} tokens were made for nobody"
            );
        }
    }
    server.complete(json!({"prompt": "a", "max_tokens": 1}));
}

#[test]
fn an_error_in_the_middle_is_an_event_of_the_stream() {
    for (path, expected) in [
        (
            CHAT,
            "data: {\"error\":{\"message\":\"the engine failed on this request\"",
        ),
        (
            COMPLETIONS,
            "data: {\"error\":{\"message\":\"the engine failed on this request\"",
        ),
        (
            "/v1/messages",
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"",
        ),
        ("/v1/responses", "event: response.failed\n"),
    ] {
        let server = Server::with(Setup {
            hook: Box::new(|step| match step {
                0..3 => MockStep::Run,
                _ => MockStep::NotANumber,
            }),
            ..Setup::default()
        });
        let response = receive(begin(&server, path, 10));
        assert_eq!(response.status, 200);
        assert!(response.body.contains(expected), "{response:?}");
        let has_done = response.body.ends_with("data: [DONE]\n\n");
        assert_eq!(has_done, path.contains("completions"));
    }
}

#[test]
fn a_full_queue_is_a_status_not_an_event() {
    let server = Server::with(Setup {
        max_queue: 0,
        hook: Box::new(|_| {
            std::thread::sleep(Duration::from_millis(10));
            MockStep::Run
        }),
        ..Setup::default()
    });
    let first = begin(&server, CHAT, 200);
    let start = Instant::now();
    while server.engine.stats().running == 0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    for path in [CHAT, COMPLETIONS, "/v1/messages", "/v1/responses"] {
        let refused = receive(begin(&server, path, 1));
        assert_eq!(refused.status, 429, "{path}");
        assert!(refused.head.contains("retry-after: 1"));
    }
    drop(first);
}

#[test]
fn readers_that_stall_are_cut_off_and_cost_nothing() {
    let mut options = crate::server::options();
    options.write_timeout = Duration::from_millis(300);
    options.max_connections = 4;
    let server = Server::with(Setup {
        options,
        max_sequences: 8,
        ..Setup::default()
    });
    // Answers with all alternatives are larger than what the sockets hold.
    let body = json!({
        "prompt": vec![vec![1, 2]; 64], "max_tokens": 200, "logprobs": 20, "stream": true, "ignore_eos": true,
    })
    .to_string();
    let stalled: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = connect(server.address);
            let head = format!(
                "POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    // All places are taken until the server gives them up.
    assert_eq!(server.get("/health").status, 200);
    server.wait_until_idle();
    drop(stalled);
}
