//! Bodies that nobody would write: never a failure of ours, never an endless answer.

use crate::client::{receive, send};
use crate::server::{Server, Setup};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

const FIELDS: [&str; 58] = [
    "model",
    "prompt",
    "messages",
    "input",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "min_tokens",
    "n",
    "best_of",
    "stop",
    "stop_token_ids",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "seed",
    "priority",
    "cache_salt",
    "truncate_prompt_tokens",
    "prompt_logprobs",
    "logprobs",
    "top_logprobs",
    "return_token_ids",
    "request_id",
    "stream",
    "stream_options",
    "echo",
    "add_special_tokens",
    "ignore_eos",
    "skip_special_tokens",
    "include_stop_str_in_output",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "structured_outputs",
    "chat_template_kwargs",
    "continue_final_message",
    "system",
    "instructions",
    "text",
    "tokens",
    "content",
    "output_config",
    "output_format",
    "encoding_format",
    "dimensions",
    "pooling",
    "normalize",
];

const PATHS: [&str; 8] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/embeddings",
    "/tokenize",
    "/detokenize",
];

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..300).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3.0..3.0_f64).prop_map(Value::from),
        any::<f64>().prop_map(|f| Value::from(if f.is_finite() { f } else { 0.0 })),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "user",
            "text",
            "auto",
            "function",
            "json_schema",
            "base64",
            "mean",
            "\u{0}",
            ""
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            prop::sample::select(vec![
                "role", "content", "type", "text", "name", "function", "format", "schema"
            ])
            .prop_map(str::to_owned),
            ".{0,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn body() -> impl Strategy<Value = Value> {
    let field = (prop::sample::select(FIELDS.to_vec()), anything());
    (any::<bool>(), prop::collection::vec(field, 0..5)).prop_map(|(is_sound, fields)| {
        let mut body = match is_sound {
            // Mostly right, so that the odd field is not hidden behind a missing one.
            true => json!({
                "prompt": "a", "messages": [{"role": "user", "content": "a"}], "input": "a", "max_tokens": 2,
                "max_output_tokens": 2, "tokens": [1],
            }),
            false => json!({}),
        };
        fields.into_iter().for_each(|(name, value)| body[name] = value);
        body
    })
}

fn server() -> Server {
    Server::with(Setup {
        max_sequences: 8,
        ..Setup::default()
    })
}

/// The client gives up after a while, so that a hang is a failure.
fn check(server: &Server, path: &str, body: &[u8]) {
    let headers = "Content-Type: application/json\r\n";
    let response = receive(send(server.address, "POST", path, headers, body));
    assert!(
        response.status < 500,
        "{path} {}: {response:?}",
        String::from_utf8_lossy(body)
    );
    assert!(
        !response.body.contains("InternalServerError"),
        "{response:?}"
    );
}

#[test]
fn odd_bodies_are_answered_or_refused() {
    let server = server();
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(400)
    });
    let cases = (prop::sample::select(PATHS.to_vec()), body());
    runner
        .run(&cases, |(path, body)| {
            check(&server, path, body.to_string().as_bytes());
            Ok(())
        })
        .unwrap();
    server.complete(json!({"prompt": "a", "max_tokens": 1}));
    server.wait_until_idle();
}

#[test]
fn broken_bodies_are_refused() {
    let server = server();
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(200)
    });
    let change = (any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
    let cases = (
        prop::sample::select(PATHS.to_vec()),
        body(),
        prop::collection::vec(change, 1..4),
    );
    runner
        .run(&cases, |(path, body, changes)| {
            let mut bytes = body.to_string().into_bytes();
            for (place, byte, cut) in changes {
                let place = place.index(bytes.len().max(1));
                match cut {
                    true => bytes.truncate(place),
                    false if place < bytes.len() => bytes[place] = byte,
                    false => bytes.push(byte),
                }
            }
            check(&server, path, &bytes);
            Ok(())
        })
        .unwrap();
    server.complete(json!({"prompt": "a", "max_tokens": 1}));
}
