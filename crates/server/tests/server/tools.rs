//! Tool calls and reasoning, in every API, streamed and not.

use crate::server::{Server, Setup, options};
use mettle_server::{AppOptions, ReasoningFormat, ToolFormat};
use serde_json::{Value, json};

fn server(format: Option<ToolFormat>) -> Server {
    Server::with(Setup {
        options: AppOptions {
            tool_format: format,
            ..options()
        },
        max_sequences: 4,
        context: 1000,
        ..Setup::default()
    })
}

fn parameters() -> Value {
    json!({
        "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"], "additionalProperties": false,
    })
}

fn chat(choice: Value) -> Value {
    json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 600, "temperature": 1.0, "seed": 5,
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters()}}],
        "tool_choice": choice,
    })
}

fn check_call(name: &Value, arguments: &str) {
    assert_eq!(name, "weather");
    let arguments: Value =
        serde_json::from_str(arguments).unwrap_or_else(|e| panic!("{e}: {arguments}"));
    assert!(
        arguments["city"] == "Oslo" || arguments["city"] == "Rome",
        "{arguments}"
    );
}

/// Ids differ from one answer to the next.
fn without_ids(calls: &Value) -> Value {
    let mut calls = calls.clone();
    for call in calls.as_array_mut().unwrap() {
        assert!(call["id"].as_str().unwrap().starts_with("call_"));
        call["id"] = Value::Null;
    }
    calls
}

#[test]
fn a_forced_call_is_made_whatever_the_format() {
    let formats = [
        None,
        Some(ToolFormat::Hermes),
        Some(ToolFormat::Llama3Json),
        Some(ToolFormat::Mistral),
    ];
    for format in formats {
        let server = server(format);
        for choice in [
            json!("required"),
            json!({"type": "function", "function": {"name": "weather"}}),
        ] {
            let mut body = chat(choice);
            body["parallel_tool_calls"] = false.into();
            let answer = server.chat(body.clone());
            let choice = &answer["choices"][0];
            assert_eq!(choice["finish_reason"], "tool_calls", "{format:?} {answer}");
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            assert_eq!((calls.len(), &calls[0]["type"]), (1, &json!("function")));
            let function = &calls[0]["function"];
            check_call(&function["name"], function["arguments"].as_str().unwrap());
            assert_eq!(choice["message"]["content"], Value::Null);
            // Streamed, the same in parts.
            let chunks = server.chunks("/v1/chat/completions", body);
            let (mut id, mut name, mut arguments) = (String::new(), String::new(), String::new());
            for chunk in &chunks {
                for delta in chunk["choices"][0]["delta"]["tool_calls"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    assert_eq!(delta["index"], 0);
                    id.push_str(delta["id"].as_str().unwrap_or(""));
                    name.push_str(delta["function"]["name"].as_str().unwrap_or(""));
                    arguments.push_str(delta["function"]["arguments"].as_str().unwrap());
                }
            }
            assert!(id.starts_with("call_") && id.len() == 29, "{id}");
            let streamed = json!([{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]);
            assert_eq!(
                without_ids(&streamed),
                without_ids(&choice["message"]["tool_calls"])
            );
            assert_eq!(
                chunks.last().unwrap()["choices"][0]["finish_reason"],
                "tool_calls"
            );
        }
    }
}

#[test]
fn anthropic_and_responses_have_calls_of_their_own() {
    let server = server(None);
    let body = json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 600, "temperature": 0,
        "tools": [{"name": "weather", "input_schema": parameters()}],
        "tool_choice": {"type": "tool", "name": "weather"},
    });
    let answer = server.ask("/v1/messages", body.clone());
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let block = answer["content"].as_array().unwrap().last().unwrap();
    assert_eq!(block["type"], "tool_use");
    check_call(&block["name"], &block["input"].to_string());
    let mut written = String::new();
    for (name, data) in server.stream("/v1/messages", body) {
        let data: Value = serde_json::from_str(&data).unwrap();
        if name == "content_block_delta" {
            assert_eq!(data["delta"]["type"], "input_json_delta");
            written.push_str(data["delta"]["partial_json"].as_str().unwrap());
        }
    }
    check_call(&block["name"], &written);
    let body = json!({
        "input": "hi", "max_output_tokens": 600, "temperature": 0, "tool_choice": "required",
        "tools": [{"type": "function", "name": "weather", "parameters": parameters()}],
        "parallel_tool_calls": false,
    });
    let answer = server.ask("/v1/responses", body);
    assert_eq!(answer["status"], "completed", "{answer}");
    let item = &answer["output"][0];
    assert_eq!(item["type"], "function_call");
    check_call(&item["name"], item["arguments"].as_str().unwrap());
    assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
}

#[test]
fn tools_are_explained_to_models_whose_template_knows_none() {
    let count = |server: &Server, body: Value| {
        server.chat(body)["usage"]["prompt_tokens"]
            .as_u64()
            .unwrap()
    };
    let mut body = chat(json!("auto"));
    body["max_tokens"] = 1.into();
    let mut plain = body.clone();
    plain.as_object_mut().unwrap().remove("tools");
    plain.as_object_mut().unwrap().remove("tool_choice");
    // The test's template ignores tools: where it is said to know them, nothing is added.
    let knowing = server(Some(ToolFormat::Hermes));
    assert_eq!(
        count(&knowing, body.clone()),
        count(&knowing, plain.clone())
    );
    body["messages"] = json!([{"role": "user", "content": "x"}]);
    body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    let explaining = server(None);
    assert!(count(&explaining, body) > count(&explaining, plain) + 50);
}

#[test]
fn a_schema_that_cannot_be_kept_is_refused() {
    let server = server(None);
    for parameters in [
        json!({"type": "object", "properties": {"x": {"type": 7}}}),
        json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}}),
        json!({"type": "array"}),
    ] {
        let mut body = chat(json!("required"));
        body["tools"][0]["function"]["parameters"] = parameters;
        let response = server.post("/v1/chat/completions", &body.to_string());
        assert_eq!(response.status, 400, "{body}: {response:?}");
        assert_eq!(response.json()["error"]["param"], "tools");
    }
}

#[test]
fn reasoning_has_a_place_of_its_own() {
    let server = Server::with(Setup {
        options: AppOptions {
            reasoning_format: Some(ReasoningFormat::DeepseekR1),
            ..options()
        },
        ..Setup::default()
    });
    let body =
        json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0});
    // The mock never closes its reasoning.
    let message = server.chat(body.clone())["choices"][0]["message"].clone();
    assert_eq!(message["content"], "");
    assert!(!message["reasoning"].as_str().unwrap().is_empty());
    assert_eq!(message["reasoning"], message["reasoning_content"]);
    let chunks = server.chunks("/v1/chat/completions", body.clone());
    let deltas = chunks.iter().map(|c| &c["choices"][0]["delta"]);
    let streamed: String = deltas.filter_map(|d| d["reasoning"].as_str()).collect();
    assert_eq!(streamed, message["reasoning"]);
    let answer = server.ask("/v1/messages", body);
    assert_eq!(answer["content"][0]["type"], "thinking");
    assert_eq!(answer["content"][0]["thinking"], message["reasoning"]);
    let answer = server.ask(
        "/v1/responses",
        json!({"input": "hi", "max_output_tokens": 8, "temperature": 0}),
    );
    assert_eq!(answer["output"][0]["type"], "reasoning");
    assert_eq!(
        answer["output"][0]["content"][0]["text"],
        message["reasoning"]
    );
}
