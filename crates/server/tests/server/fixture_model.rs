//! A tiny real model on the CPU behind the server: the same tokens alone, together, streamed and from the cache.

use crate::server::{PAGES, Server, Setup, VOCABULARY};
use mettle_cpu::CpuBackend;
use mettle_models::{Model, OpenOptions};
use mettle_plan::{Backend, PageLayout, PrepareOptions, passes};
use serde_json::{Value, json};
use std::path::Path;

const SEQUENCES: usize = 4;

fn server() -> Server {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/llama");
    let model = Model::open(&folder, OpenOptions::default()).unwrap();
    assert_eq!(model.vocab_size, VOCABULARY);
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let options = PrepareOptions {
        // Less than some prompts: they are computed in chunks.
        bounds: plan.bounds(32, SEQUENCES),
        kv_pages: PAGES,
        page_layout: PageLayout::new(&plan.kv_groups, 32),
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(1).prepare(&[plan], &*model.tensors, options);
    Server::with(Setup {
        executable: Some(executable.unwrap()),
        max_sequences: SEQUENCES,
        ..Setup::default()
    })
}

fn body(client: u32) -> Value {
    let prompt: Vec<u32> = (0..40)
        .map(|i| (i * 7 + client * 13) % VOCABULARY as u32)
        .collect();
    json!({
        "prompt": prompt, "max_tokens": 24, "temperature": 0.8, "seed": client, "logprobs": 2,
        "return_token_ids": true,
    })
}

/// What must not depend on company: tokens, text and every log-probability.
fn choice(answer: &Value) -> Value {
    answer["choices"][0].clone()
}

#[test]
fn answers_do_not_depend_on_company_or_cache() {
    let server = server();
    let alone: Vec<Value> = (0..6)
        .map(|client| choice(&server.complete(body(client))))
        .collect();
    assert!((1..6).all(|client| alone[client] != alone[0]));
    std::thread::scope(|scope| {
        for (client, expected) in alone.iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..3 {
                    let answer = server.complete(body(client as u32));
                    assert_eq!(&choice(&answer), expected);
                }
            });
        }
    });
    let mut salted = body(0);
    salted["cache_salt"] = "fresh".into();
    let fresh = server.complete(salted);
    assert_eq!(fresh["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(choice(&fresh), alone[0]);
    let again = server.complete(body(0));
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
}

#[test]
fn streams_and_choices_are_those_of_a_whole_answer() {
    let server = server();
    let mut body = json!({
        "messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 30, "n": 3, "seed": 9,
        "temperature": 1.0, "stop": ["e"],
    });
    let whole = server.chat(body.clone());
    let chunks = server.chunks("/v1/chat/completions", body.clone());
    let text = |index: usize| -> String {
        let of = chunks.iter().filter(|c| c["choices"][0]["index"] == index);
        of.filter_map(|c| c["choices"][0]["delta"]["content"].as_str())
            .collect()
    };
    for index in 0..3 {
        assert_eq!(text(index), whole["choices"][index]["message"]["content"]);
    }
    body["n"] = 1.into();
    let first = server.chat(body);
    assert_eq!(choice(&first), choice(&whole));
}
