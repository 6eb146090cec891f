//! Requests that must be refused with a reason, after each of which the server works as before.

use crate::client::{receive, send};
use crate::server::{Server, Setup, options};
use expect_test::{Expect, expect};
use mettle_server::AppOptions;
use serde_json::json;

fn check(server: &Server, body: &str, expected: Expect) {
    let response = server.post("/v1/completions", body);
    expected.assert_eq(&response.error());
    let next = json!({"prompt": "a", "max_tokens": 1});
    server.complete(next);
}

#[test]
fn values_outside_their_ranges_are_refused() {
    let server = Server::start();
    let with = |fields: &str| format!(r#"{{"prompt": "a", {fields}}}"#);
    let check = |fields: &str, expected: Expect| check(&server, &with(fields), expected);
    check(
        r#""temperature": 2.1"#,
        expect!["400 BadRequestError temperature: temperature is 2.1, it must be between 0 and 2"],
    );
    check(
        r#""temperature": -1"#,
        expect!["400 BadRequestError temperature: temperature is -1, it must be between 0 and 2"],
    );
    check(
        r#""temperature": 1e300"#,
        expect!["400 BadRequestError temperature: temperature is inf, it must be between 0 and 2"],
    );
    check(
        r#""temperature": 1e400"#,
        expect!["400 BadRequestError temperature: temperature must be a number, found 1e400"],
    );
    check(
        r#""temperature": "hot""#,
        expect![[r#"400 BadRequestError temperature: temperature must be a number, found "hot""#]],
    );
    check(
        r#""top_p": 0"#,
        expect!["400 BadRequestError top_p: top_p is 0, it must be above 0 and not above 1"],
    );
    check(
        r#""min_p": 1.5"#,
        expect!["400 BadRequestError min_p: min_p is 1.5, it must be between 0 and 1"],
    );
    check(
        r#""top_k": -2"#,
        expect!["400 BadRequestError top_k: top_k is -2, it must be -1, 0 or above"],
    );
    check(
        r#""presence_penalty": 3"#,
        expect![
            "400 BadRequestError presence_penalty: presence_penalty is 3, it must be between -2 and 2"
        ],
    );
    check(
        r#""frequency_penalty": -2.5"#,
        expect![
            "400 BadRequestError frequency_penalty: frequency_penalty is -2.5, it must be between -2 and 2"
        ],
    );
    check(
        r#""repetition_penalty": 0"#,
        expect![
            "400 BadRequestError repetition_penalty: repetition_penalty is 0, it must be a finite number above 0"
        ],
    );
    check(
        r#""max_tokens": 0"#,
        expect!["400 BadRequestError max_tokens: max_tokens is 0, which is allowed with echo only"],
    );
    check(
        r#""max_tokens": -1"#,
        expect!["400 BadRequestError max_tokens: max_tokens is -1, it must not be negative"],
    );
    check(
        r#""max_tokens": 9223372036854775808"#,
        expect![
            "400 BadRequestError max_tokens: max_tokens must be an integer, found 9223372036854775808"
        ],
    );
    check(
        r#""max_tokens": 9223372036854775807"#,
        expect![
            "400 BadRequestError max_tokens: this model's maximum context length is 256 tokens, you requested 9223372036854775808 tokens (1 in the prompt, 9223372036854775807 for the answer)"
        ],
    );
    check(
        r#""max_tokens": 4, "min_tokens": 5"#,
        expect!["400 BadRequestError min_tokens: min_tokens is 5, which is above max_tokens (4)"],
    );
    check(
        r#""n": 0"#,
        expect!["400 BadRequestError n: n is 0, it must be between 1 and 128"],
    );
    check(
        r#""n": 129"#,
        expect!["400 BadRequestError n: n is 129, it must be between 1 and 128"],
    );
    check(
        r#""n": 2, "best_of": 5"#,
        expect!["400 BadRequestError best_of: best_of is 5 and n is 2: they must be equal"],
    );
    check(
        r#""logprobs": 21"#,
        expect!["400 BadRequestError logprobs: logprobs is 21, at most 20 can be given"],
    );
    check(
        r#""logprobs": true"#,
        expect!["400 BadRequestError logprobs: logprobs must be an integer, found true"],
    );
    check(
        r#""prompt_logprobs": 21"#,
        expect![
            "400 BadRequestError prompt_logprobs: prompt_logprobs is 21, at most 20 can be given"
        ],
    );
    check(
        r#""stop": """#,
        expect!["400 BadRequestError stop: a text in stop must not be empty"],
    );
    check(
        r#""stop": ["a", ""]"#,
        expect!["400 BadRequestError stop: a text in stop must not be empty"],
    );
    check(
        r#""stop": 7"#,
        expect!["400 BadRequestError stop: stop must be a string or a list of strings, found 7"],
    );
    let stops = format!(r#""stop": {}"#, json!(vec!["x"; 257]));
    check(
        &stops,
        expect!["400 BadRequestError stop: stop has 257 entries, it may have 256"],
    );
    check(
        r#""stop_token_ids": [267]"#,
        expect![
            "400 BadRequestError stop_token_ids: stop_token_ids holds token id 267, the vocabulary ends at 266"
        ],
    );
    check(
        r#""logit_bias": {"x": 1}"#,
        expect![[r#"400 BadRequestError logit_bias: logit_bias holds "x", which is no token id"#]],
    );
    check(
        r#""logit_bias": {"999": 1}"#,
        expect![
            "400 BadRequestError logit_bias: logit_bias holds token id 999, the vocabulary ends at 266"
        ],
    );
    check(
        r#""truncate_prompt_tokens": 0"#,
        expect![
            "400 BadRequestError truncate_prompt_tokens: truncate_prompt_tokens is 0, it must be -1 or above 0"
        ],
    );
    check(
        r#""stream_options": {"include_usage": true}"#,
        expect!["400 BadRequestError stream_options: stream_options needs stream: true"],
    );
    check(
        r#""model": "other""#,
        expect!["404 NotFoundError model: the model `other` does not exist here"],
    );
    check(
        r#""echo": 1"#,
        expect!["400 BadRequestError echo: echo must be true or false, found 1"],
    );
}

#[test]
fn prompts_that_cannot_be_continued_are_refused() {
    let server = Server::start();
    check(
        &server,
        "{}",
        expect![
            "400 BadRequestError prompt: prompt is missing: a string, a list of strings, a list of token ids or a list of lists of token ids"
        ],
    );
    check(
        &server,
        r#"{"prompt": null}"#,
        expect![
            "400 BadRequestError prompt: prompt is missing: a string, a list of strings, a list of token ids or a list of lists of token ids"
        ],
    );
    check(
        &server,
        r#"{"prompt": ""}"#,
        expect!["400 BadRequestError prompt: the prompt is empty"],
    );
    check(
        &server,
        r#"{"prompt": []}"#,
        expect![
            "400 BadRequestError prompt: prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids, found []"
        ],
    );
    check(
        &server,
        r#"{"prompt": [[]]}"#,
        expect!["400 BadRequestError prompt: the prompt is empty"],
    );
    check(
        &server,
        r#"{"prompt": {"text": "a"}}"#,
        expect![[
            r#"400 BadRequestError prompt: prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids, found {"text": "a"}"#
        ]],
    );
    check(
        &server,
        r#"{"prompt": [1, "a"]}"#,
        expect![[
            r#"400 BadRequestError prompt: prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids, found [1, "a"]"#
        ]],
    );
    check(
        &server,
        r#"{"prompt": [267]}"#,
        expect![
            "400 BadRequestError prompt: prompt holds token id 267, the vocabulary ends at 266"
        ],
    );
    check(
        &server,
        r#"{"prompt": [-1]}"#,
        expect![
            "400 BadRequestError prompt: prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids, found [-1]"
        ],
    );
    check(
        &server,
        r#"{"prompt": "\ud800"}"#,
        expect![[
            r#"400 BadRequestError prompt: prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids, found "\ud800""#
        ]],
    );
    let long = json!({"prompt": vec![1; 256], "max_tokens": 1}).to_string();
    check(
        &server,
        &long,
        expect![
            "400 BadRequestError prompt: this model's maximum context length is 256 tokens, you requested 257 tokens (256 in the prompt, 1 for the answer)"
        ],
    );
    let full = json!({"prompt": vec![1; 256]}).to_string();
    check(
        &server,
        &full,
        expect![
            "400 BadRequestError prompt: this model's maximum context length is 256 tokens, you requested 257 tokens (256 in the prompt, 1 for the answer)"
        ],
    );
    let million = json!({"prompt": vec![1; 1_000_000]}).to_string();
    check(
        &server,
        &million,
        expect![
            "400 BadRequestError prompt: this model's maximum context length is 256 tokens, you requested 1000001 tokens (1000000 in the prompt, 1 for the answer)"
        ],
    );
    let letters = json!({"prompt": "a".repeat(1_000_000)}).to_string();
    check(
        &server,
        &letters,
        expect![
            "400 BadRequestError prompt: this model's maximum context length is 256 tokens, you requested a text of 1000000 bytes, which cannot fit"
        ],
    );
    let many = json!({"prompt": vec!["a"; 1025], "n": 2}).to_string();
    check(
        &server,
        &many,
        expect![
            "400 BadRequestError prompt: 2050 answers are asked for at once, at most 2048 can be"
        ],
    );
}

#[test]
fn broken_json_is_refused() {
    let server = Server::start();
    check(
        &server,
        "",
        expect![
            "400 BadRequestError -: the body is not a JSON object: EOF while parsing a value at line 1 column 0"
        ],
    );
    check(
        &server,
        "{",
        expect![
            "400 BadRequestError -: the body is not a JSON object: EOF while parsing an object at line 1 column 1"
        ],
    );
    check(
        &server,
        "[1]",
        expect![
            "400 BadRequestError -: the body is not a JSON object: invalid type: sequence, expected an object at line 1 column 0"
        ],
    );
    check(
        &server,
        r#"{"prompt": "a", "prompt": "b"}"#,
        expect![
            "400 BadRequestError -: the body is not a JSON object: a field is there twice at line 1 column 24"
        ],
    );
    check(
        &server,
        r#"{"prompt": "a", "temperature": NaN}"#,
        expect![
            "400 BadRequestError -: the body is not a JSON object: expected value at line 1 column 32"
        ],
    );
    check(
        &server,
        r#"{"prompt": "a"} more"#,
        expect![
            "400 BadRequestError -: the body is not a JSON object: trailing characters at line 1 column 17"
        ],
    );
    let deep = format!(
        r#"{{"prompt": {}1{}}}"#,
        "[".repeat(60_000),
        "]".repeat(60_000)
    );
    check(
        &server,
        &deep,
        expect![
            "400 BadRequestError prompt: prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids, found [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[..."
        ],
    );
    let headers = "Content-Type: application/json\r\n";
    let invalid = send(
        server.address,
        "POST",
        "/v1/completions",
        headers,
        b"{\"prompt\": \"\xff\"}",
    );
    expect!["400 BadRequestError -: the body is not a JSON object: invalid unicode code point at line 1 column 13"].assert_eq(&receive(invalid).error());
}

#[test]
fn unknown_and_empty_fields_and_odd_text_are_fine() {
    let server = Server::start();
    let deep = format!("{}{}", "[".repeat(60_000), "]".repeat(60_000));
    for fields in [
        format!(r#""user": "me", "x": {deep}"#),
        r#""suffix": "", "bad_words": [], "use_beam_search": false, "best_of": 1"#.to_owned(),
        r#""top_k": -1, "stream": false, "response_format": {"type": "text"}, "logprobs": null"#
            .to_owned(),
    ] {
        let body = format!(r#"{{"prompt": "\u0000\ud83d\ude00", "max_tokens": 1.0, {fields}}}"#);
        assert_eq!(
            server.post("/v1/completions", &body).status,
            200,
            "{fields:.80}"
        );
    }
}

#[test]
fn bodies_must_be_json_by_type_and_not_too_large() {
    let server = Server::with(Setup {
        options: AppOptions {
            body_limit: 1000,
            ..options()
        },
        ..Setup::default()
    });
    let body = br#"{"prompt": "a", "max_tokens": 1}"#;
    let post = |headers: &str, body: &[u8]| {
        receive(send(
            server.address,
            "POST",
            "/v1/completions",
            headers,
            body,
        ))
    };
    for right in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
    ] {
        assert_eq!(
            post(&format!("Content-Type: {right}\r\n"), body).status,
            200,
            "{right}"
        );
    }
    expect!["400 BadRequestError -: the header Content-Type: application/json is missing"]
        .assert_eq(&post("", body).error());
    expect!["400 BadRequestError -: the content type is text/plain, it must be application/json"]
        .assert_eq(&post("Content-Type: text/plain\r\n", body).error());
    let json = "Content-Type: application/json\r\n";
    expect!["413 PayloadTooLargeError -: the body is larger than 1000 bytes"]
        .assert_eq(&post(json, &[b' '; 1001]).error());
    // The same without saying beforehand how long it is.
    let mut stream = crate::client::connect(server.address);
    use std::io::Write;
    let head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n";
    write!(
        stream,
        "{head}{json}\r\n7d0\r\n{}\r\n0\r\n\r\n",
        " ".repeat(2000)
    )
    .unwrap();
    expect!["413 PayloadTooLargeError -: the body is larger than 1000 bytes"]
        .assert_eq(&receive(stream).error());
}
