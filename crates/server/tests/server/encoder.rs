//! A tiny real encoder behind the server: transformers' vectors, and a clear no to everything else.

use crate::client;
use crate::server::{Server, Setup, options};
use mettle_cpu::CpuBackend;
use mettle_models::{Model, OpenOptions};
use mettle_plan::{Backend, PageLayout, PrepareOptions, passes};
use mettle_server::{AppOptions, Pooling};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SEQUENCES: usize = 4;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/bert")
}

fn server() -> Server {
    let model = Model::open(&folder(), OpenOptions::default()).unwrap();
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let options_of_plan = PrepareOptions {
        bounds: plan.bounds(512, SEQUENCES),
        kv_pages: 0,
        page_layout: PageLayout::new(&plan.kv_groups, 32),
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(1).prepare(&[plan], &*model.tensors, options_of_plan);
    Server::with(Setup {
        executable: Some(executable.unwrap()),
        max_sequences: SEQUENCES,
        context: model.context_length,
        tokenizer: Some(model.tokenizer().unwrap()),
        vocabulary: model.vocab_size,
        options: AppOptions {
            template: None,
            pooling: Pooling::Mean,
            ..options()
        },
        ..Setup::default()
    })
}

fn texts() -> Vec<Value> {
    let json = std::fs::read(folder().join("hidden.json")).unwrap();
    let reference: Value = serde_json::from_slice(&json).unwrap();
    reference["texts"].as_array().unwrap().clone()
}

fn floats(value: &Value) -> Vec<f32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn near(found: &Value, expected: &Value) {
    let (found, expected) = (floats(&found["embedding"]), floats(expected));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-3, "{found} {expected}");
    }
}

#[test]
fn several_texts_of_a_request_become_their_vectors() {
    let (server, texts) = (server(), texts());
    let input: Vec<&str> = texts.iter().map(|t| t["text"].as_str().unwrap()).collect();
    for (more, key) in [
        (json!({}), "normalized"),
        (json!({"normalize": false}), "mean"),
        (json!({"normalize": false, "pooling": "cls"}), "cls"),
    ] {
        let mut body = json!({ "input": input });
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        let answer = server.ask("/v1/embeddings", body);
        let data = answer["data"].as_array().unwrap();
        assert_eq!(data.len(), texts.len());
        for (embedding, text) in data.iter().zip(&texts) {
            near(embedding, &text[key]);
        }
        let tokens = |text: &Value| text["ids"].as_array().unwrap().len();
        let tokens: usize = texts.iter().map(tokens).sum();
        assert_eq!(answer["usage"]["prompt_tokens"], tokens);
    }
}

/// Clients at once get what each gets alone, to the last bit.
#[test]
fn company_changes_no_bit() {
    let server = server();
    let body = |client: usize| {
        let ids: Vec<usize> = (0..20 + 40 * client)
            .map(|i| (i * 7 + client * 13) % 300 + 5)
            .collect();
        json!({"input": [ids, [2, 80 + client, 3]], "normalize": false})
    };
    let ask = |client: usize| server.ask("/v1/embeddings", body(client))["data"].clone();
    let alone: Vec<Value> = (0..6).map(ask).collect();
    assert!((1..6).all(|client| alone[client] != alone[0]));
    std::thread::scope(|scope| {
        for (client, expected) in alone.iter().enumerate() {
            let ask = &ask;
            scope.spawn(move || (0..3).for_each(|_| assert_eq!(&ask(client), expected)));
        }
    });
}

#[test]
fn whoever_wants_tokens_is_told_what_the_model_is() {
    let server = server();
    let body = json!({
        "messages": [{"role": "user", "content": "Hello"}], "prompt": "Hello", "input": "Hello", "max_tokens": 5,
    });
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = stream.into();
            let response = server.post(path, &body.to_string());
            assert_eq!(response.status, 400, "{path}: {response:?}");
            let error = &response.json()["error"];
            assert_eq!(
                error["message"],
                "this model only makes embeddings: use /v1/embeddings"
            );
            assert_eq!(error["param"], "model", "{path}");
        }
    }
}

#[test]
fn a_text_that_is_too_long_is_refused_or_cut_behind() {
    let server = server();
    let ids: Vec<usize> = (0..400).map(|i| i % 300 + 5).collect();
    let response = server.post("/v1/embeddings", &json!({ "input": ids }).to_string());
    assert_eq!(response.status, 400);
    assert_eq!(
        response.json()["error"]["message"],
        "this model's maximum context length is 310 tokens, you requested 400 tokens (input 0)"
    );
    let cut = server.ask(
        "/v1/embeddings",
        json!({"input": ids, "truncate_prompt_tokens": 9}),
    );
    let kept = [&ids[..8], &ids[399..]].concat();
    let expected = server.ask("/v1/embeddings", json!({ "input": kept }));
    assert_eq!(cut["data"], expected["data"]);
}

#[test]
fn the_numbers_of_an_engine_without_a_cache_are_numbers() {
    let server = server();
    server.ask("/v1/embeddings", json!({"input": "rain and snow"}));
    let state = server.get("/engine/state").json();
    assert_eq!(
        (&state["kv"]["pages"], &state["kv"]["map"]),
        (&json!(0), &json!(""))
    );
    assert_eq!(state["limits"]["max_model_len"], 310);
    assert!(state["kernels"]["attention_rows"].as_u64() > Some(0));
    let metrics = client::get(server.address, "/metrics").body;
    let usage = metrics
        .lines()
        .find(|line| line.starts_with("vllm:kv_cache_usage_perc{"));
    assert!(usage.unwrap().ends_with(" 0"), "{usage:?}");
    let models = server.get("/v1/models").json();
    assert_eq!(models["data"][0]["max_model_len"], 310);
}
