//! What comes back from `/v1/embeddings`, compared with the mock's own hidden states.

use crate::client::{PATIENCE, send};
use crate::server::{CONTEXT, PAGES, Server, Setup, VOCABULARY, layout, options};
use expect_test::{Expect, expect};
use mettle_engine::mock::{MOCK_HIDDEN, MockExecutable, MockStep};
use mettle_plan::Sizes;
use mettle_server::{AppOptions, Pooling};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const INPUT: [u32; 5] = [7, 20, 33, 46, 59];

fn last(tokens: &[u32]) -> Vec<f32> {
    MockExecutable::hidden_after(&layout(), tokens)
}

fn mean(tokens: &[u32]) -> Vec<f32> {
    let mut sums = [0.0; MOCK_HIDDEN];
    for length in 1..=tokens.len() {
        let row = last(&tokens[..length]);
        sums.iter_mut()
            .zip(row)
            .for_each(|(sum, value)| *sum += f64::from(value));
    }
    sums.map(|sum| (sum / tokens.len() as f64) as f32).to_vec()
}

fn of_length_one(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
    vector.iter().map(|v| v / length).collect()
}

fn vector(embedding: &Value) -> Vec<f32> {
    serde_json::from_value(embedding["embedding"].clone()).unwrap()
}

fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
}

fn embed(server: &Server, body: Value) -> Value {
    server.ask("/v1/embeddings", body)
}

#[test]
fn the_last_hidden_state_of_length_one_is_the_embedding() {
    let server = Server::start();
    let answer = embed(&server, json!({"input": INPUT}));
    assert!(answer["id"].as_str().unwrap().starts_with("embd-"));
    assert_eq!(answer["object"], "list");
    assert_eq!(answer["data"].as_array().unwrap().len(), 1);
    let embedding = &answer["data"][0];
    assert_eq!(embedding["object"], "embedding");
    assert_eq!(embedding["index"], 0);
    near(&vector(embedding), &of_length_one(&last(&INPUT)));
    assert_eq!(
        answer["usage"],
        json!({
            "prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
        })
    );
}

#[test]
fn pooling_and_length_are_as_asked_for() {
    let server = Server::start();
    let ask = |more: Value| {
        let mut body = json!({"input": INPUT});
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        vector(&embed(&server, body)["data"][0])
    };
    assert_eq!(ask(json!({"normalize": false})), last(&INPUT));
    let raw = json!({"normalize": false, "pooling": "mean"});
    assert_eq!(ask(raw), mean(&INPUT));
    near(
        &ask(json!({"pooling": "mean"})),
        &of_length_one(&mean(&INPUT)),
    );
    let first = json!({"normalize": false, "pooling": "cls"});
    assert_eq!(ask(first), last(&INPUT[..1]));
    // The server's own way, where nothing is said.
    let server = Server::with(Setup {
        options: AppOptions {
            pooling: Pooling::Mean,
            normalize: false,
            ..options()
        },
        ..Setup::default()
    });
    let answer = embed(&server, json!({"input": INPUT}));
    assert_eq!(vector(&answer["data"][0]), mean(&INPUT));
    let answer = embed(&server, json!({"input": INPUT, "normalize": true}));
    near(&vector(&answer["data"][0]), &of_length_one(&mean(&INPUT)));
    let other = json!({"input": INPUT, "normalize": false, "pooling": "last"});
    assert_eq!(vector(&embed(&server, other)["data"][0]), last(&INPUT));
}

#[test]
fn base64_holds_the_same_numbers() {
    let server = Server::start();
    let numbers = embed(&server, json!({"input": INPUT, "encoding_format": "float"}));
    let text = embed(
        &server,
        json!({"input": INPUT, "encoding_format": "base64"}),
    );
    let bytes = decoded(text["data"][0]["embedding"].as_str().unwrap());
    let (fours, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    let values: Vec<f32> = fours.iter().map(|four| f32::from_le_bytes(*four)).collect();
    assert_eq!(values, vector(&numbers["data"][0]));
}

/// The bytes of a base64 text, bit by bit.
fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.trim_end_matches('=').chars() {
        bits = bits << 6 | LETTERS.find(letter).expect("a letter") as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[test]
fn every_shape_of_input_is_taken_in_order() {
    let server = Server::with(Setup {
        max_sequences: 4,
        ..Setup::default()
    });
    let ids = |text: &str| {
        let answer = server.ask("/tokenize", json!({ "prompt": text }));
        serde_json::from_value::<Vec<u32>>(answer["tokens"].clone()).unwrap()
    };
    let text = embed(&server, json!({"input": "hello", "normalize": false}));
    assert_eq!(vector(&text["data"][0]), last(&ids("hello")));
    let texts = json!({"input": ["hello", "good day"], "normalize": false});
    let texts = embed(&server, texts);
    assert_eq!(vector(&texts["data"][1]), last(&ids("good day")));
    let tokens = ids("hello").len() + ids("good day").len();
    assert_eq!(texts["usage"]["prompt_tokens"], tokens);

    // More than are in the engine at a time, of many lengths.
    let lists: Vec<Vec<u32>> = (1..60)
        .map(|n| (0..n).map(|i| (i * n) % VOCABULARY as u32).collect())
        .collect();
    let answer = embed(&server, json!({"input": lists, "normalize": false}));
    for (index, list) in lists.iter().enumerate() {
        assert_eq!(answer["data"][index]["index"], index);
        assert_eq!(vector(&answer["data"][index]), last(list));
    }
    // What is asked for again comes from the cache, but for its last page.
    let recent = &lists[55..];
    let again = embed(&server, json!({"input": recent, "normalize": false}));
    for (index, list) in recent.iter().enumerate() {
        assert_eq!(vector(&again["data"][index]), last(list));
    }
    let cached = &again["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert_eq!(*cached, 4 * 48);
}

#[test]
fn a_long_input_is_cut_only_where_asked() {
    let server = Server::start();
    let long: Vec<u32> = (0..300).map(|i| i % VOCABULARY as u32).collect();
    for (keep, expected) in [
        (json!(4), &long[296..]),
        (json!(-1), &long[300 - CONTEXT..]),
    ] {
        let body = json!({"input": long, "truncate_prompt_tokens": keep, "normalize": false});
        assert_eq!(vector(&embed(&server, body)["data"][0]), last(expected));
    }
    // The context may be full: nothing is made after it.
    let full = json!({"input": &long[..CONTEXT], "normalize": false});
    assert_eq!(
        vector(&embed(&server, full)["data"][0]),
        last(&long[..CONTEXT])
    );
}

fn refused(server: &Server, body: Value, error: Expect) {
    let response = server.post("/v1/embeddings", &body.to_string());
    error.assert_eq(&response.error());
}

#[test]
fn wrong_requests_are_refused_with_the_numbers() {
    let server = Server::start();
    refused(
        &server,
        json!({}),
        expect![
            "400 BadRequestError input: input is missing: a string, a list of strings, a list of token ids or a list of lists of token ids"
        ],
    );
    refused(
        &server,
        json!({"input": ""}),
        expect!["400 BadRequestError input: input 0 is empty"],
    );
    refused(
        &server,
        json!({"input": []}),
        expect![
            "400 BadRequestError input: input must be a string, a list of strings, a list of token ids or a list of lists of token ids, found []"
        ],
    );
    refused(
        &server,
        json!({"input": [[1], []]}),
        expect!["400 BadRequestError input: input 1 is empty"],
    );
    refused(
        &server,
        json!({"input": [[1], vec![1; 257]]}),
        expect![
            "400 BadRequestError input: this model's maximum context length is 256 tokens, you requested 257 tokens (input 1)"
        ],
    );
    refused(
        &server,
        json!({"input": "a".repeat(100_000)}),
        expect![
            "400 BadRequestError input: this model's maximum context length is 256 tokens, you requested a text of 100000 bytes, which cannot fit"
        ],
    );
    refused(
        &server,
        json!({"input": [267]}),
        expect![
            "400 BadRequestError input: input 0 holds token id 267, the vocabulary ends at 266"
        ],
    );
    refused(
        &server,
        json!({"input": vec!["a"; 2049]}),
        expect!["400 BadRequestError input: input has 2049 entries, it may have 2048"],
    );
    refused(
        &server,
        json!({"input": "a", "dimensions": 4}),
        expect![
            "400 BadRequestError dimensions: dimensions is 4: this model was not trained to have its vectors cut, leave it out"
        ],
    );
    refused(
        &server,
        json!({"input": "a", "encoding_format": "bytes"}),
        expect![[
            r#"400 BadRequestError encoding_format: encoding_format must be "float" or "base64", found "bytes""#
        ]],
    );
    refused(
        &server,
        json!({"input": "a", "pooling": "max"}),
        expect![[
            r#"400 BadRequestError pooling: pooling must be "last", "mean" or "cls", found "max""#
        ]],
    );
    refused(
        &server,
        json!({"input": "a", "truncate_prompt_tokens": 0}),
        expect![
            "400 BadRequestError truncate_prompt_tokens: truncate_prompt_tokens is 0, it must be -1 or above 0"
        ],
    );
    refused(
        &server,
        json!({"input": "a", "model": "other"}),
        expect!["404 NotFoundError model: the model `other` does not exist here"],
    );
    assert_eq!(embed(&server, json!({"input": "a"}))["object"], "list");
}

#[test]
fn a_device_without_hidden_states_says_so() {
    let mock = MockExecutable::new(VOCABULARY, layout(), PAGES, Sizes::bounds(512, 1));
    let server = Server::with(Setup {
        executable: Some(Box::new(mock.without_hidden())),
        ..Setup::default()
    });
    refused(
        &server,
        json!({"input": "a"}),
        expect![
            "501 NotImplementedError -: this model gives no hidden states on this device, which pooling needs"
        ],
    );
}

#[test]
fn what_is_not_a_number_is_an_error_of_ours() {
    let server = Server::with(Setup {
        hook: Box::new(|_| MockStep::NotANumber),
        ..Setup::default()
    });
    refused(
        &server,
        json!({"input": "a"}),
        expect!["500 InternalServerError -: the engine failed on this request"],
    );
}

/// A client that leaves takes all its inputs with it: those under way and those that have not been submitted.
#[test]
fn who_leaves_aborts_every_input() {
    let server = Server::with(Setup {
        hook: Box::new(|_| {
            std::thread::sleep(Duration::from_millis(20));
            MockStep::Run
        }),
        ..Setup::default()
    });
    let body = json!({ "input": vec![vec![1; 200]; 500], "pooling": "mean" }).to_string();
    let headers = "Content-Type: application/json\r\n";
    let client = send(
        server.address,
        "POST",
        "/v1/embeddings",
        headers,
        body.as_bytes(),
    );
    let start = Instant::now();
    while server.engine.stats().ended.length == 0 {
        assert!(start.elapsed() < PATIENCE);
    }
    drop(client);
    server.wait_until_idle();
    let ended = server.engine.stats().ended;
    assert!(ended.length < 100 && ended.abort > 0, "{ended:?}");
    assert_eq!(server.engine.stats().blocks_used, 0);
}

#[test]
fn vectors_and_answers_come_side_by_side() {
    let server = Server::with(Setup {
        max_sequences: 4,
        ..Setup::default()
    });
    let complete = json!({"prompt": INPUT, "max_tokens": 100, "temperature": 0});
    let alone = server.complete(complete.clone())["choices"][0]["text"].clone();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for pooling in ["last", "mean", "last", "mean"] {
                    let lists = vec![INPUT; 20];
                    let body = json!({"input": lists, "pooling": pooling, "normalize": false});
                    let expected = match pooling {
                        "last" => last(&INPUT),
                        _ => mean(&INPUT),
                    };
                    let answer = embed(&server, body);
                    for embedding in answer["data"].as_array().unwrap() {
                        assert_eq!(vector(embedding), expected);
                    }
                    let answer = server.complete(complete.clone());
                    assert_eq!(answer["choices"][0]["text"], alone);
                }
            });
        }
    });
}
