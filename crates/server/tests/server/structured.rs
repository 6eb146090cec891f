//! Answers bound to a form: they keep to it, and a form that cannot be kept to is refused.

use crate::server::{Server, Setup};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn server() -> Server {
    Server::with(Setup {
        max_sequences: 4,
        ..Setup::default()
    })
}

fn complete(server: &Server, fields: Value) -> (String, Value) {
    let mut body = json!({"prompt": "a", "max_tokens": 150, "temperature": 1.5, "seed": 3});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let answer = server.complete(body);
    let choice = &answer["choices"][0];
    (
        choice["text"].as_str().unwrap().to_owned(),
        choice["finish_reason"].clone(),
    )
}

#[test]
fn answers_keep_to_their_form() {
    let server = server();
    for seed in 0..5 {
        let (text, reason) = complete(
            &server,
            json!({"structured_outputs": {"choice": ["yes", "no"]}, "seed": seed}),
        );
        assert!(["yes", "no"].contains(&text.as_str()), "{text}");
        assert_eq!(reason, "stop");
        let (text, _) = complete(
            &server,
            json!({"structured_outputs": {"regex": "[0-9]{3}-[a-c]"}, "seed": seed}),
        );
        let (digits, letter) = text.split_once('-').unwrap();
        assert!(
            digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()),
            "{text}"
        );
        assert!(["a", "b", "c"].contains(&letter), "{text}");
        let schema = json!({
            "type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}},
            "required": ["a", "b"], "additionalProperties": false,
        });
        for format in [
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}),
            json!({"structured_outputs": {"json": schema}}),
            json!({"structured_outputs": {"json": schema.to_string()}}),
        ] {
            let mut format = format;
            format["seed"] = seed.into();
            let (text, reason) = complete(&server, format);
            if reason == "stop" {
                let value: Value =
                    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
                assert!(value["a"] == "x" || value["a"] == "y");
                assert!(value["b"].is_boolean());
            }
        }
    }
    let (text, _) = complete(
        &server,
        json!({"structured_outputs": {"grammar": "start: \"ab\" | \"cd\""}}),
    );
    assert!(text == "ab" || text == "cd");
    let (text, _) = complete(
        &server,
        json!({"response_format": {"type": "json_object"}, "max_tokens": 5}),
    );
    assert!(text.trim_start().starts_with('{'), "{text}");
}

#[test]
fn streams_and_other_apis_keep_to_it_too() {
    let server = server();
    let format = json!({"type": "json_schema", "name": "s", "schema": {"enum": ["x", "y"]}});
    let answer = server.ask(
        "/v1/responses",
        json!({"input": "a", "text": {"format": format}, "max_output_tokens": 100}),
    );
    let text = &answer["output"][0]["content"][0]["text"];
    assert!(text == "\"x\"" || text == "\"y\"", "{answer}");
    let chunks = server.chunks(
        "/v1/chat/completions",
        json!({
            "messages": [{"role": "user", "content": "a"}], "n": 3, "max_tokens": 50,
            "structured_outputs": {"choice": ["yes", "no"]},
        }),
    );
    for index in 0..3 {
        let of = chunks.iter().filter(|c| c["choices"][0]["index"] == index);
        let text: String = of
            .filter_map(|c| c["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert!(text == "yes" || text == "no", "{text}");
    }
}

#[test]
fn a_form_that_cannot_be_kept_is_refused_in_time() {
    let server = server();
    let deep = format!("{}{}", "(".repeat(60_000), ")".repeat(60_000));
    let mut schema = json!({"type": "string"});
    for _ in 0..60 {
        schema = json!({"type": "array", "items": schema, "minItems": 5, "maxItems": 50});
    }
    for (param, fields) in [
        ("structured_outputs", json!({"regex": "("})),
        ("structured_outputs", json!({"regex": 7})),
        ("structured_outputs", json!({"regex": deep})),
        ("structured_outputs", json!({"grammar": "start: ["})),
        ("structured_outputs", json!({"choice": []})),
        ("structured_outputs", json!({"choice": "yes"})),
        ("structured_outputs", json!({"json": "{"})),
        ("structured_outputs", json!({"json": {"type": "nonsense"}})),
        (
            "structured_outputs",
            json!({"json": {"type": "string", "pattern": 7}}),
        ),
        ("structured_outputs", json!({"regex": "a", "choice": ["a"]})),
        ("structured_outputs", json!({"structural_tag": {}})),
        ("structured_outputs", json!([])),
        ("response_format", json!({})),
        ("response_format", json!({"type": "xml"})),
        ("response_format", json!({"type": "json_schema"})),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nowhere"}}}),
        ),
    ] {
        let start = Instant::now();
        let body = json!({"prompt": "a", "max_tokens": 2, param: fields});
        let response = server.post("/v1/completions", &body.to_string());
        assert_eq!(response.status, 400, "{body:.200}: {response:?}");
        assert_eq!(response.json()["error"]["param"], param);
        assert!(start.elapsed() < Duration::from_secs(10));
        server.complete(json!({"prompt": "a", "max_tokens": 1}));
    }
    // Large, but not too large for everybody: either is fine, as long as it is soon.
    for form in [
        json!({"json": schema}),
        json!({"regex": "((a{1,1000}){1,1000}){1,1000}"}),
    ] {
        let start = Instant::now();
        let body = json!({"prompt": "a", "structured_outputs": form, "max_tokens": 2});
        let status = server.post("/v1/completions", &body.to_string()).status;
        assert!([200, 400].contains(&status), "{status}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    let both = json!({
        "prompt": "a", "structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"},
    });
    assert_eq!(
        server.post("/v1/completions", &both.to_string()).error(),
        "400 BadRequestError structured_outputs: response_format and structured_outputs exclude each other"
    );
}
