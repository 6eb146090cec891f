//! Chats, messages and responses that must be refused with a reason.

use crate::server::Server;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn extended(mut body: Value, fields: &str) -> String {
    let fields: Value = serde_json::from_str(&format!("{{{fields}}}")).unwrap();
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body.to_string()
}

fn still_works(server: &Server) {
    server.complete(json!({"prompt": "a", "max_tokens": 1}));
}

#[test]
fn chats() {
    let server = Server::start();
    let check = |fields: &str, expected: Expect| {
        let body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
        let response = server.post("/v1/chat/completions", &extended(body, fields));
        expected.assert_eq(&response.error());
        still_works(&server);
    };
    check(
        r#""messages": null"#,
        expect!["400 BadRequestError messages: messages is missing"],
    );
    check(
        r#""messages": []"#,
        expect!["400 BadRequestError messages: messages must not be an empty list"],
    );
    check(
        r#""messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]"#,
        expect![[
            r#"400 BadRequestError messages: a content part has the type "image_url": this model takes text only"#
        ]],
    );
    check(
        r#""temperature": 2.5"#,
        expect!["400 BadRequestError temperature: temperature is 2.5, it must be between 0 and 2"],
    );
    check(
        r#""top_p": 1.1"#,
        expect!["400 BadRequestError top_p: top_p is 1.1, it must be above 0 and not above 1"],
    );
    check(
        r#""max_tokens": 0"#,
        expect!["400 BadRequestError max_tokens: max_tokens is 0, it must be above 0"],
    );
    check(
        r#""max_completion_tokens": 1000"#,
        expect![
            "400 BadRequestError max_tokens: this model's maximum context length is 256 tokens, you requested 1017 tokens (17 in the prompt, 1000 for the answer)"
        ],
    );
    check(
        r#""n": 200"#,
        expect!["400 BadRequestError n: n is 200, it must be between 1 and 128"],
    );
    check(
        r#""stop": [""]"#,
        expect!["400 BadRequestError stop: a text in stop must not be empty"],
    );
    check(
        r#""bad_words": [""]"#,
        expect!["400 BadRequestError bad_words: a text in bad_words must not be empty"],
    );
    check(
        r#""allowed_token_ids": []"#,
        expect![
            "400 BadRequestError allowed_token_ids: allowed_token_ids holds an empty list, which says nothing"
        ],
    );
    check(
        r#""top_logprobs": 2"#,
        expect!["400 BadRequestError top_logprobs: top_logprobs needs logprobs: true"],
    );
    check(
        r#""logprobs": true, "top_logprobs": 21"#,
        expect!["400 BadRequestError top_logprobs: top_logprobs is 21, at most 20 can be given"],
    );
    check(
        r#""logprobs": 5"#,
        expect!["400 BadRequestError logprobs: logprobs must be true or false, found 5"],
    );
    check(
        r#""stream_options": {"include_usage": true}"#,
        expect!["400 BadRequestError stream_options: stream_options needs stream: true"],
    );
    check(
        r#""stream": true, "prompt_logprobs": 1"#,
        expect![
            "400 BadRequestError prompt_logprobs: prompt_logprobs are not given with stream: true"
        ],
    );
    check(
        r#""add_generation_prompt": true, "continue_final_message": true"#,
        expect![
            "400 BadRequestError continue_final_message: add_generation_prompt and continue_final_message exclude each other"
        ],
    );
    check(
        r#""chat_template": "{{ messages }}""#,
        expect![
            "400 BadRequestError chat_template: chat_template: templates in requests are not accepted"
        ],
    );
    check(
        r#""chat_template_kwargs": {"messages": []}"#,
        expect![
            "400 BadRequestError -: the template argument `messages` would replace one of the template's own variables"
        ],
    );
    check(
        r#""model": "other""#,
        expect!["404 NotFoundError model: the model `other` does not exist here"],
    );
    check(
        r#""priority": 9999999999"#,
        expect![
            "400 BadRequestError priority: priority is 9999999999, it must be between -2147483648 and 2147483647"
        ],
    );
    check(
        r#""functions": [{"name": "f"}]"#,
        expect!["400 BadRequestError functions: functions is not supported"],
    );
}

#[test]
fn tools() {
    let server = Server::start();
    let check = |fields: &str, expected: Expect| {
        let body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
        let response = server.post("/v1/chat/completions", &extended(body, fields));
        expected.assert_eq(&response.error());
        still_works(&server);
    };
    check(
        r#""tools": []"#,
        expect!["400 BadRequestError tools: tools must not be an empty list"],
    );
    check(
        r#""tool_choice": "auto""#,
        expect!["400 BadRequestError tool_choice: tool_choice needs tools"],
    );
    check(
        r#""tool_choice": "required""#,
        expect!["400 BadRequestError tool_choice: tool_choice needs tools"],
    );
    check(
        r#""tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}"#,
        expect![[
            r#"400 BadRequestError tool_choice: tool_choice names "g", which is none of the tools"#
        ]],
    );
    check(
        r#""tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "perhaps""#,
        expect![[
            r#"400 BadRequestError tool_choice: tool_choice must be none, auto, required or {"type": "function", "function": {"name": ...}}"#
        ]],
    );
    check(
        r#""tools": [{"type": "retrieval"}]"#,
        expect!["400 BadRequestError tools: a tool must have the type function"],
    );
    check(
        r#""tools": [{"type": "function", "function": {"name": ""}}]"#,
        expect![
            "400 BadRequestError tools: a tool's function must have a name of up to 128 letters, digits, dots, - and _"
        ],
    );
    check(
        r#""tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]"#,
        expect![
            "400 BadRequestError tools: a tool's parameters must be a JSON schema, which is an object"
        ],
    );
}

#[test]
fn messages() {
    let server = Server::start();
    let check = |fields: &str, expected: Expect| {
        let body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
        let response = server.post("/v1/messages", &extended(body, fields));
        assert_eq!(response.json()["type"], "error");
        expected.assert_eq(&response.error());
        still_works(&server);
    };
    check(
        r#""max_tokens": null"#,
        expect!["400 invalid_request_error max_tokens: max_tokens is missing"],
    );
    check(
        r#""messages": []"#,
        expect!["400 invalid_request_error messages: messages must have at least one message"],
    );
    check(
        r#""messages": [{"role": "robot", "content": "x"}]"#,
        expect![[
            r#"400 invalid_request_error messages: a role is "robot", it must be user or assistant"#
        ]],
    );
    check(
        r#""messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]"#,
        expect![[
            r#"400 invalid_request_error messages: a content part has the type "image": this model takes text only"#
        ]],
    );
    check(
        r#""system": 7"#,
        expect!["400 invalid_request_error system: system must be a string or text blocks"],
    );
    check(
        r#""stop_sequences": [""]"#,
        expect![
            "400 invalid_request_error stop_sequences: a text in stop_sequences must not be empty"
        ],
    );
    check(
        r#""model": "other""#,
        expect!["404 not_found_error model: the model `other` does not exist here"],
    );
    check(
        r#""tool_choice": {"type": "any"}"#,
        expect!["400 invalid_request_error tool_choice: tool_choice needs tools"],
    );
    expect!["400 invalid_request_error -: the body is not a JSON object: EOF while parsing a value at line 1 column 0"]
        .assert_eq(&server.post("/v1/messages", "").error());
}

#[test]
fn responses() {
    let server = Server::start();
    let check = |fields: &str, expected: Expect| {
        let body = json!({"input": "a", "max_output_tokens": 1});
        let response = server.post("/v1/responses", &extended(body, fields));
        expected.assert_eq(&response.error());
        still_works(&server);
    };
    check(
        r#""input": null"#,
        expect!["400 BadRequestError input: input is missing"],
    );
    check(
        r#""input": []"#,
        expect!["400 BadRequestError input: input must not be an empty list"],
    );
    check(
        r#""input": [{"type": "computer_call"}]"#,
        expect![[
            r#"400 BadRequestError input: an item of input has the type "computer_call", which is not supported"#
        ]],
    );
    check(
        r#""input": [{"role": "user", "content": [{"type": "input_image"}]}]"#,
        expect![[
            r#"400 BadRequestError input: a content part has the type "input_image": this model takes text only"#
        ]],
    );
    check(
        r#""previous_response_id": "resp_1""#,
        expect![
            "400 BadRequestError previous_response_id: previous_response_id is not supported: responses are not kept"
        ],
    );
    check(
        r#""max_output_tokens": 0"#,
        expect![
            "400 BadRequestError max_output_tokens: max_output_tokens is 0, it must be above 0"
        ],
    );
    check(
        r#""temperature": -1"#,
        expect!["400 BadRequestError temperature: temperature is -1, it must be between 0 and 2"],
    );
}
