//! Anthropic's messages: the form of answers, and the order of the events of a stream.

use crate::server::{Server, Setup, options};
use mettle_server::AppOptions;
use serde_json::{Value, json};

const PATH: &str = "/v1/messages";

fn body() -> Value {
    json!({
        "model": crate::server::NAME, "max_tokens": 12, "temperature": 0, "system": "be brief",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    })
}

/// The same conversation as chat.
fn chat_text(server: &Server) -> Value {
    let messages =
        json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]);
    let answer = server.chat(json!({"messages": messages, "max_tokens": 12, "temperature": 0}));
    answer["choices"][0]["message"]["content"].clone()
}

#[test]
fn a_message_is_what_chat_would_answer() {
    let server = Server::start();
    let expected = chat_text(&server);
    let answer = server.ask(PATH, body());
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(answer["type"], "message");
    assert_eq!(answer["role"], "assistant");
    assert_eq!(
        answer["content"],
        json!([{"type": "text", "text": expected}])
    );
    assert_eq!(answer["stop_reason"], "max_tokens");
    assert_eq!(answer["stop_sequence"], Value::Null);
    let usage = &answer["usage"];
    let count = server.ask("/v1/messages/count_tokens", body())["input_tokens"].as_u64();
    let part = |name: &str| usage[name].as_u64().unwrap();
    // The chat before has left its prompt in the cache.
    assert_eq!(
        count,
        Some(part("input_tokens") + part("cache_read_input_tokens"))
    );
    assert!(part("cache_read_input_tokens") > 0);
    assert_eq!(usage["output_tokens"], 12);
}

#[test]
fn a_stop_sequence_is_named() {
    let server = Server::start();
    let text = chat_text(&server);
    let letter = text
        .as_str()
        .unwrap()
        .chars()
        .skip(1)
        .find(char::is_ascii_graphic);
    let stop = letter.expect("an ordinary letter").to_string();
    let mut body = body();
    body["stop_sequences"] = json!([stop]);
    let answer = server.ask(PATH, body);
    assert_eq!(answer["stop_reason"], "stop_sequence");
    assert_eq!(answer["stop_sequence"], stop);
}

#[test]
fn the_events_of_a_stream_come_in_order() {
    let server = Server::start();
    let whole = server.ask(PATH, body());
    let events = server.stream(PATH, body());
    let mut text = String::new();
    let mut names: Vec<&str> = Vec::new();
    for (name, data) in &events {
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name.as_str());
        if name == "content_block_delta" {
            assert_eq!(
                (&data["index"], &data["delta"]["type"]),
                (&json!(0), &json!("text_delta"))
            );
            text.push_str(data["delta"]["text"].as_str().unwrap());
        }
        if names.last() != Some(&name.as_str()) {
            names.push(name);
        }
    }
    assert_eq!(text, whole["content"][0]["text"]);
    assert_eq!(
        names,
        [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let data = |name: &str| -> Value {
        let (_, data) = events.iter().find(|(n, _)| n == name).unwrap();
        serde_json::from_str(data).unwrap()
    };
    let start = &data("message_start")["message"];
    assert_eq!(
        (&start["content"], &start["stop_reason"]),
        (&json!([]), &Value::Null)
    );
    let delta = data("message_delta");
    assert_eq!(
        delta["delta"],
        json!({"stop_reason": "max_tokens", "stop_sequence": null})
    );
    assert_eq!(delta["usage"]["output_tokens"], 12);
}

#[test]
fn an_assistant_message_at_the_end_is_continued() {
    let server = Server::start();
    let messages =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ab"}]);
    let answer = server.ask(
        PATH,
        json!({"messages": messages, "max_tokens": 6, "temperature": 0}),
    );
    let chat = server.chat(json!({
        "messages": messages, "max_tokens": 6, "temperature": 0, "continue_final_message": true,
    }));
    assert_eq!(
        answer["content"][0]["text"],
        chat["choices"][0]["message"]["content"]
    );
}

#[test]
fn calls_and_results_of_earlier_turns_are_taken() {
    let server = Server::start();
    let messages = json!([
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "look"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sun"}]},
            {"type": "text", "text": "so?"},
        ]},
    ]);
    let body = json!({"messages": messages, "max_tokens": 4});
    let count = &server.ask("/v1/messages/count_tokens", body.clone())["input_tokens"];
    let same = server.ask(
        "/tokenize",
        json!({"prompt": "user:weather?;assistant:look;tool:sun;user:so?;assistant:"}),
    );
    assert_eq!(count, &same["count"]);
    server.ask(PATH, body);
}

/// Both names of the field; what is not kept to is refused, never ignored.
#[test]
fn an_answer_keeps_to_its_schema() {
    let server = Server::start();
    let schema = json!({
        "type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"],
        "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "schema": schema});
    for (name, value) in [
        ("output_config", json!({"format": format, "effort": "low"})),
        ("output_format", format.clone()),
    ] {
        let mut body = body();
        body["max_tokens"] = 200.into();
        body["temperature"] = 1.0.into();
        body[name] = value;
        let answer = server.ask(PATH, body);
        assert_eq!(answer["stop_reason"], "end_turn", "{answer}");
        let text = answer["content"][0]["text"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value == json!({"a": "x"}) || value == json!({"a": "y"}));
    }
    for (value, message) in [
        (
            json!({"format": {"type": "regex", "pattern": "a"}}),
            "output_config.format must be {\"type\": \"json_schema\", \"schema\": ...}",
        ),
        (
            json!({"format": {"type": "json_schema"}}),
            "output_config.format must be {\"type\": \"json_schema\", \"schema\": ...}",
        ),
        (
            json!({"format": {"type": "json_schema", "schema": {"type": "nothing"}}}),
            "",
        ),
    ] {
        let mut body = body();
        body["output_config"] = value;
        let response = server.post(PATH, &body.to_string());
        assert_eq!(response.status, 400, "{response:?}");
        let error = &response.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["param"], "output_config.format");
        let found = error["message"].as_str().unwrap();
        assert!(found.starts_with(message), "{found}");
    }
    // A config without a format asks for nothing.
    let mut body = body();
    body["output_config"] = json!({"effort": "low"});
    server.ask(PATH, body);
}

#[test]
fn a_wrong_key_is_refused_in_this_form_too() {
    let server = Server::with(Setup {
        options: AppOptions {
            api_keys: vec!["right".into()],
            ..options()
        },
        ..Setup::default()
    });
    for path in [PATH, "/v1/messages/count_tokens"] {
        let response = server.post(path, &body().to_string());
        assert_eq!(response.status, 401);
        assert!(response.head.contains("www-authenticate: bearer"));
        assert_eq!(response.json()["type"], "error");
        assert_eq!(response.json()["error"]["type"], "authentication_error");
    }
}
