//! What comes back from `/v1/chat/completions`, compared with the mock's own arithmetic.

use crate::server::{Server, Setup, VOCABULARY, greedy, logprobs_after};
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{e}: {value}"))
}

fn body() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 8})
}

fn with(fields: Value) -> Value {
    let mut body = body();
    let Value::Object(fields) = fields else {
        panic!("an object")
    };
    body.as_object_mut().unwrap().extend(fields);
    body
}

fn prompt_of(server: &Server, text: &str) -> Vec<u32> {
    ids(&server.ask("/tokenize", json!({ "prompt": text }))["tokens"])
}

#[test]
fn messages_go_through_the_template_and_are_answered() {
    let server = Server::start();
    let answer = server.chat(with(json!({"return_token_ids": true})));
    let prompt = prompt_of(&server, "user:hi;assistant:");
    assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
    let expected = greedy(&prompt, 8);
    let choice = &answer["choices"][0];
    assert_eq!(ids(&choice["token_ids"]), expected);
    let text = server.tokenizer.decode(&expected, true);
    assert_eq!(
        choice["message"],
        json!({"role": "assistant", "content": text, "refusal": null})
    );
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(
        answer["usage"],
        json!({
            "prompt_tokens": prompt.len(), "completion_tokens": 8, "total_tokens": prompt.len() + 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        })
    );
}

#[test]
fn an_answer_is_as_long_as_the_context_allows() {
    let server = Server::start();
    let messages = json!([{"role": "user", "content": "hi"}]);
    let answer = server.chat(json!({"messages": messages, "temperature": 0}));
    assert_eq!(answer["usage"]["total_tokens"], crate::server::CONTEXT);
    let newer = server.chat(with(json!({"max_completion_tokens": 3})));
    assert_eq!(newer["usage"]["completion_tokens"], 3);
}

#[test]
fn special_tokens_inside_a_message_stay_text() {
    let server = Server::start();
    let special = server
        .tokenizer
        .special_tokens()
        .next()
        .map(|(id, text)| (id, text.to_owned()));
    let (id, text) = special.expect("the fixture has special tokens");
    let messages = json!([{"role": "user", "content": text}]);
    let answer = server.chat(with(
        json!({"messages": messages, "return_token_ids": true}),
    ));
    assert!(!ids(&answer["prompt_token_ids"]).contains(&id));
    let raw = server.complete(json!({"prompt": text, "max_tokens": 1, "return_token_ids": true}));
    assert!(ids(&raw["choices"][0]["prompt_token_ids"]).contains(&id));
}

#[test]
fn log_probabilities_come_with_alternatives_and_bytes() {
    let server = Server::start();
    let answer = server.chat(with(json!({"logprobs": true, "top_logprobs": 2})));
    let prompt = prompt_of(&server, "user:hi;assistant:");
    let mut tokens = prompt.clone();
    let scored = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    assert_eq!(scored.len(), 8);
    for (entry, id) in scored.iter().zip(greedy(&prompt, 8)) {
        let expected = logprobs_after(&tokens);
        let logprob = entry["logprob"].as_f64().unwrap();
        assert!((logprob - expected[id as usize]).abs() < 1e-4);
        let bytes: Vec<u8> = serde_json::from_value(entry["bytes"].clone()).unwrap();
        assert_eq!(Some(bytes.as_slice()), server.tokenizer.token_bytes(id));
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["token"]), (2, &entry["token"]));
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        tokens.push(id);
    }
    let plain = server.chat(with(json!({"logprobs": true})));
    let scored = &plain["choices"][0]["logprobs"]["content"][0];
    assert_eq!(scored["top_logprobs"], json!([]));
}

#[test]
fn prompt_log_probabilities_are_given_once() {
    let server = Server::start();
    let answer = server.chat(with(json!({"prompt_logprobs": 1})));
    let entries = answer["prompt_logprobs"].as_array().unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], entries.len());
    assert_eq!(entries[0], Value::Null);
    assert!(entries[1].as_object().unwrap().len() <= 2);
}

#[test]
fn choices_differ_and_a_seed_repeats_them() {
    let server = Server::with(Setup {
        max_sequences: 4,
        ..Setup::default()
    });
    let wanted = json!({"n": 3, "seed": 7, "temperature": 1.5, "return_token_ids": true});
    let texts = |answer: &Value| -> Vec<Vec<u32>> {
        let choices = answer["choices"].as_array().unwrap();
        let indices: Vec<_> = choices.iter().map(|c| &c["index"]).collect();
        assert_eq!(indices, [0, 1, 2]);
        choices.iter().map(|c| ids(&c["token_ids"])).collect()
    };
    let first = server.chat(with(wanted.clone()));
    let second = server.chat(with(wanted));
    assert_eq!(texts(&first), texts(&second));
    assert_ne!(texts(&first)[0], texts(&first)[1]);
    assert_eq!(first["usage"]["completion_tokens"], 24);
    let alone = server.chat(with(
        json!({"seed": 7, "temperature": 1.5, "return_token_ids": true}),
    ));
    assert_eq!(ids(&alone["choices"][0]["token_ids"]), texts(&first)[0]);
}

#[test]
fn a_final_message_is_continued_and_echoed() {
    let server = Server::start();
    let messages =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ab"}]);
    let fields =
        json!({"messages": messages, "continue_final_message": true, "return_token_ids": true});
    let answer = server.chat(with(fields.clone()));
    let prompt = prompt_of(&server, "user:hi;assistant:ab");
    assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
    let mut echoed = with(fields);
    echoed["echo"] = true.into();
    let whole = server.chat(echoed)["choices"][0]["message"]["content"].clone();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(whole, format!("ab{text}"));
}

#[test]
fn parts_developers_and_tools_reach_the_template() {
    let server = Server::start();
    let messages = json!([
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
    ]);
    let answer = server.chat(with(
        json!({"messages": messages, "return_token_ids": true}),
    ));
    let prompt = prompt_of(&server, "system:a\nb;user:c;assistant:");
    assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    server.chat(with(json!({"tools": [tool], "tool_choice": "none"})));
}

#[test]
fn what_is_allowed_and_what_is_banned() {
    let server = Server::start();
    let prompt = prompt_of(&server, "user:hi;assistant:");
    let best = greedy(&prompt, 1)[0];
    let first = |fields: Value| {
        let mut fields = fields;
        fields["return_token_ids"] = true.into();
        let answer = server.chat(with(fields));
        ids(&answer["choices"][0]["token_ids"])
    };
    assert_ne!(
        first(json!({"logit_bias": {best.to_string(): -100}}))[0],
        best
    );
    let other = (best + 1) % VOCABULARY as u32;
    assert_eq!(first(json!({"allowed_token_ids": [other]})), [other; 8]);
    let banned = server.tokenizer.decode(&[best], false);
    if server
        .tokenizer
        .encode(&banned, mettle_text::SpecialTokens::Plain, false)
        .ok()
        == Some(vec![best])
    {
        assert_ne!(first(json!({"bad_words": [banned]}))[0], best);
    }
}

#[test]
fn a_repeated_conversation_is_found_in_the_cache() {
    let server = Server::start();
    let messages = json!([{"role": "user", "content": "x".repeat(60)}]);
    let cached = || {
        let answer = server.chat(with(json!({"messages": messages, "max_tokens": 1})));
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(cached(), 0);
    assert!(cached() >= 16);
}

#[test]
fn a_model_without_a_template_only_completes() {
    let server = Server::with(Setup {
        options: mettle_server::AppOptions::new(crate::server::NAME),
        ..Setup::default()
    });
    assert_eq!(
        server.post(PATH, &body().to_string()).error(),
        "400 BadRequestError messages: this model has no chat template: use /v1/completions"
    );
}
