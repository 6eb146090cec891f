//! What comes back from `/v1/completions`, compared with the mock's own arithmetic.

use crate::server::{Server, VOCABULARY, greedy, logprobs_after};
use serde_json::{Value, json};

const PROMPT: [u32; 5] = [7, 20, 33, 46, 59];

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{e}: {value}"))
}

fn near(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    assert!((value - expected).abs() < 1e-4, "{value} {expected}");
}

#[test]
fn token_ids_are_continued_greedily() {
    let server = Server::start();
    let answer = server.complete(json!({
        "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "return_token_ids": true,
    }));
    assert_eq!(answer["object"], "text_completion");
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    let choice = &answer["choices"][0];
    let expected = greedy(&PROMPT, 6);
    assert_eq!(ids(&choice["token_ids"]), expected);
    assert_eq!(ids(&choice["prompt_token_ids"]), PROMPT);
    assert_eq!(choice["text"], server.tokenizer.decode(&expected, true));
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["stop_reason"], Value::Null);
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(
        answer["usage"],
        json!({
            "prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 0},
        })
    );
}

#[test]
fn text_is_tokenized_and_sixteen_tokens_are_the_default() {
    let server = Server::start();
    let answer =
        server.complete(json!({"prompt": "hello", "temperature": 0, "return_token_ids": true}));
    let prompt = ids(&answer["choices"][0]["prompt_token_ids"]);
    assert_eq!(server.tokenizer.decode(&prompt, false), "hello");
    assert_eq!(ids(&answer["choices"][0]["token_ids"]), greedy(&prompt, 16));
}

#[test]
fn echo_with_log_probabilities_scores_prompt_and_answer() {
    let server = Server::start();
    for max_tokens in [0, 3] {
        let answer = server.complete(json!({
            "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "echo": true, "logprobs": 2,
        }));
        let choice = &answer["choices"][0];
        let mut tokens = PROMPT.to_vec();
        tokens.extend(greedy(&PROMPT, max_tokens));
        let decode = |ids: &[u32]| server.tokenizer.decode(ids, false);
        let lists = &choice["logprobs"];
        assert_eq!(lists["tokens"].as_array().unwrap().len(), tokens.len());
        assert_eq!(lists["token_logprobs"][0], Value::Null);
        assert_eq!(lists["top_logprobs"][0], Value::Null);
        for (position, id) in tokens.iter().enumerate() {
            assert_eq!(lists["tokens"][position], decode(&[*id]));
            if position == 0 {
                continue;
            }
            let expected = logprobs_after(&tokens[..position]);
            near(&lists["token_logprobs"][position], expected[*id as usize]);
            let top = lists["top_logprobs"][position].as_object().unwrap();
            near(&top[&decode(&[*id])], expected[*id as usize]);
            let best = (0..VOCABULARY).max_by(|a, b| expected[*a].total_cmp(&expected[*b]));
            let best = best.unwrap();
            near(&top[&decode(&[best as u32])], expected[best]);
            assert!((1..=3).contains(&top.len()));
        }
        assert_eq!(answer["usage"]["completion_tokens"], max_tokens);
    }
}

#[test]
fn offsets_count_characters_of_the_text() {
    let server = Server::start();
    let answer = server.complete(json!({
        "prompt": "aä b", "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 0,
    }));
    let choice = &answer["choices"][0];
    assert!(choice["text"].as_str().unwrap().starts_with("aä b"));
    let lists = &choice["logprobs"];
    let offsets = ids(&lists["text_offset"]);
    // The answer's only token starts where the prompt's four characters end.
    assert_eq!((offsets[0], *offsets.last().unwrap()), (0, 4));
    assert!(offsets.is_sorted());
    let top = lists["top_logprobs"].as_array().unwrap();
    assert!(
        top[1..]
            .iter()
            .all(|top| top.as_object().unwrap().len() == 1)
    );
}

#[test]
fn prompt_log_probabilities_come_by_token_id() {
    let server = Server::start();
    let answer = server.complete(json!({"prompt": PROMPT, "max_tokens": 1, "prompt_logprobs": 1}));
    let entries = answer["choices"][0]["prompt_logprobs"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]), (PROMPT.len(), &Value::Null));
    let expected = logprobs_after(&PROMPT[..2]);
    let entry = &entries[2][PROMPT[2].to_string()];
    near(&entry["logprob"], expected[PROMPT[2] as usize]);
    let better = expected
        .iter()
        .filter(|l| **l > expected[PROMPT[2] as usize])
        .count();
    assert_eq!(entry["rank"], better + 1);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let server = Server::start();
    let body = json!({"prompt": PROMPT, "max_tokens": 20, "temperature": 0});
    let whole = server.complete(body.clone())["choices"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let ascii = |c: &char| c.is_ascii_graphic();
    let stop = whole
        .chars()
        .skip(1)
        .find(ascii)
        .expect("an ordinary letter")
        .to_string();
    let mut stopped = body;
    stopped["stop"] = json!([stop, "never to be seen"]);
    let answer = server.complete(stopped.clone());
    let choice = &answer["choices"][0];
    let (before, _) = whole.split_once(&stop).unwrap();
    assert_eq!(choice["text"], before);
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["stop_reason"], stop);
    stopped["include_stop_str_in_output"] = json!(true);
    let answer = server.complete(stopped);
    assert_eq!(answer["choices"][0]["text"], format!("{before}{stop}"));
}

#[test]
fn a_stop_token_ends_the_answer_and_is_named() {
    let server = Server::start();
    let expected = greedy(&PROMPT, 8);
    let answer = server.complete(json!({
        "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logprobs": 0,
        "stop_token_ids": [expected[3]], "return_token_ids": true,
    }));
    let choice = &answer["choices"][0];
    let end = expected.iter().position(|id| *id == expected[3]).unwrap();
    assert_eq!(ids(&choice["token_ids"]), expected[..=end]);
    assert_eq!(
        choice["text"],
        server.tokenizer.decode(&expected[..end], true)
    );
    assert_eq!(choice["stop_reason"], expected[3]);
    assert_eq!(
        choice["logprobs"]["tokens"].as_array().unwrap().len(),
        end + 1
    );
}

#[test]
fn lists_of_prompts_and_several_answers_come_in_order() {
    let server = Server::start();
    let answer = server.complete(json!({
        "prompt": [PROMPT, [1, 2, 3]], "max_tokens": 4, "n": 2, "temperature": 1.5, "seed": -3,
        "return_token_ids": true,
    }));
    let choices = answer["choices"].as_array().unwrap();
    let indices: Vec<_> = choices.iter().map(|choice| &choice["index"]).collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    assert_eq!(ids(&choices[1]["prompt_token_ids"]), PROMPT);
    assert_eq!(ids(&choices[2]["prompt_token_ids"]), [1, 2, 3]);
    assert_ne!(choices[0]["token_ids"], choices[1]["token_ids"]);
    assert_eq!(answer["usage"]["prompt_tokens"], 8);
    assert_eq!(answer["usage"]["completion_tokens"], 16);
    let alone = server.complete(json!({
        "prompt": PROMPT, "max_tokens": 4, "temperature": 1.5, "seed": -3, "return_token_ids": true,
    }));
    assert_eq!(alone["choices"][0]["token_ids"], choices[0]["token_ids"]);
}

#[test]
fn a_repeated_prefix_is_found_in_the_cache() {
    let server = Server::start();
    let prompt: Vec<u32> = (0..40).collect();
    let cached = |body: &Value| {
        server.complete(body.clone())["usage"]["prompt_tokens_details"]["cached_tokens"].clone()
    };
    let body = json!({"prompt": prompt, "max_tokens": 1});
    assert_eq!(cached(&body), 0);
    assert_eq!(cached(&body), 32);
    let salted = json!({"prompt": prompt, "max_tokens": 1, "cache_salt": "mine"});
    assert_eq!(cached(&salted), 0);
}

#[test]
fn the_prompt_is_cut_only_when_asked_for() {
    let server = Server::start();
    let answer = server.complete(json!({
        "prompt": PROMPT, "max_tokens": 1, "truncate_prompt_tokens": 2, "return_token_ids": true,
    }));
    assert_eq!(ids(&answer["choices"][0]["prompt_token_ids"]), PROMPT[3..]);
}

#[test]
fn a_plain_request_id_becomes_the_answers() {
    use crate::client::{receive, send};
    let server = Server::start();
    let id = |header: &str| {
        let headers = format!("Content-Type: application/json\r\nX-Request-Id: {header}\r\n");
        let body = br#"{"prompt": "a", "max_tokens": 1}"#;
        let response = receive(send(
            server.address,
            "POST",
            "/v1/completions",
            &headers,
            body,
        ));
        response.json()["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(id("trace-1.b"), "cmpl-trace-1.b");
    let random = id("<script>");
    assert_eq!(random.len(), "cmpl-".len() + 32);
    assert_ne!(random, id("<script>"));
}

#[test]
fn clients_at_once_get_the_answers_they_would_get_alone() {
    let server = Server::start();
    let body = |client: u32| json!({"prompt": [client, 5, 9], "max_tokens": 20, "temperature": 0, "return_token_ids": true});
    std::thread::scope(|scope| {
        for client in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..5 {
                    let answer = server.complete(body(client));
                    let made = ids(&answer["choices"][0]["token_ids"]);
                    assert_eq!(made, greedy(&[client, 5, 9], 20));
                }
            });
        }
    });
}
