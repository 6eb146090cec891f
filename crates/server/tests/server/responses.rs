//! OpenAI's Responses API: the form of answers, and the order of the events of a stream.

use crate::server::Server;
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";

fn body() -> Value {
    json!({"input": "hi", "instructions": "be brief", "max_output_tokens": 12, "temperature": 0})
}

/// Without what differs from one request to the next.
fn timeless(mut response: Value) -> Value {
    response["id"] = Value::Null;
    response["created_at"] = Value::Null;
    response["usage"]["input_tokens_details"] = Value::Null;
    for item in response["output"].as_array_mut().unwrap() {
        item["id"] = Value::Null;
    }
    response
}

#[test]
fn a_response_is_what_chat_would_answer() {
    let server = Server::start();
    let messages =
        json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]);
    let chat = server.chat(json!({"messages": messages, "max_tokens": 12, "temperature": 0}));
    let answer = server.ask(PATH, body());
    assert!(answer["id"].as_str().unwrap().starts_with("resp_"));
    assert_eq!(answer["object"], "response");
    assert_eq!(answer["status"], "incomplete");
    assert_eq!(
        answer["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    let item = &answer["output"][0];
    assert_eq!(
        (&item["type"], &item["role"]),
        (&json!("message"), &json!("assistant"))
    );
    let part = &item["content"][0];
    assert_eq!(part["type"], "output_text");
    assert_eq!(part["text"], chat["choices"][0]["message"]["content"]);
    assert_eq!(
        answer["usage"]["input_tokens"],
        chat["usage"]["prompt_tokens"]
    );
    assert_eq!(answer["usage"]["output_tokens"], 12);
    let items = json!([
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]);
    let mut listed = body();
    listed["input"] = items;
    listed["instructions"] = Value::Null;
    let listed = server.ask(PATH, listed);
    assert_eq!(listed["output"][0]["content"], item["content"]);
}

#[test]
fn the_events_of_a_stream_come_in_order_and_are_numbered() {
    let server = Server::start();
    let whole = server.ask(PATH, body());
    let mut text = String::new();
    let mut names: Vec<String> = Vec::new();
    let mut last = Value::Null;
    for (number, (name, data)) in server.stream(PATH, body()).into_iter().enumerate() {
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(data["type"], name.as_str());
        assert_eq!(data["sequence_number"], number);
        if name == "response.output_text.delta" {
            text.push_str(data["delta"].as_str().unwrap());
        }
        if names.last() != Some(&name) {
            names.push(name);
        }
        last = data;
    }
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete"
        ]
    );
    assert_eq!(text, whole["output"][0]["content"][0]["text"]);
    assert_eq!(timeless(last["response"].clone()), timeless(whole));
}

#[test]
fn log_probabilities_come_where_they_are_included() {
    let server = Server::start();
    let mut body = body();
    body["include"] = json!(["message.output_text.logprobs"]);
    body["top_logprobs"] = 1.into();
    let answer = server.ask(PATH, body);
    let scored = answer["output"][0]["content"][0]["logprobs"]
        .as_array()
        .unwrap();
    assert_eq!(scored.len(), 12);
    assert_eq!(scored[0]["top_logprobs"].as_array().unwrap().len(), 1);
}

#[test]
fn calls_of_earlier_turns_are_taken() {
    let server = Server::start();
    let input = json!([
        {"role": "user", "content": "weather?"},
        {"type": "reasoning", "summary": [], "id": "rs_1"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]);
    let answer = server.ask(PATH, json!({"input": input, "max_output_tokens": 2}));
    let same = server.ask(
        "/tokenize",
        json!({"prompt": "user:weather?;assistant:;tool:sun;assistant:"}),
    );
    assert_eq!(answer["usage"]["input_tokens"], same["count"]);
}

#[test]
fn a_form_that_cannot_be_kept_is_refused_by_its_own_name() {
    let server = Server::start();
    let regex = json!({"regex": "a"});
    for (format, outputs, error) in [
        (
            json!({"type": "json_schema", "name": "s"}),
            Value::Null,
            "400 BadRequestError text.format: text.format has the type json_schema and no schema",
        ),
        (
            json!({"type": "xml"}),
            Value::Null,
            "400 BadRequestError text.format: text.format.type must be text, json_object, json_schema or structural_tag",
        ),
        (
            json!({"type": "json_object"}),
            regex.clone(),
            "400 BadRequestError structured_outputs: text.format and structured_outputs exclude each other",
        ),
    ] {
        let body = json!({"input": "a", "text": {"format": format}, "structured_outputs": outputs});
        assert_eq!(server.post(PATH, &body.to_string()).error(), error);
    }
    let free =
        json!({"input": "a", "text": {"format": {"type": "text"}}, "structured_outputs": regex});
    let answer = server.ask(PATH, free);
    assert_eq!(answer["output"][0]["content"][0]["text"], "a");
}
