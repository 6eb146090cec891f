//! A tiny real T5 behind the server: transformers' answer, alone and in company, and what its encoder cannot do.

use crate::server::{PAGES, Server, Setup, options};
use mettle_cpu::CpuBackend;
use mettle_models::{Model, OpenOptions};
use mettle_plan::{Backend, KvElement, PageLayout, PrepareOptions, passes};
use mettle_server::AppOptions;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SEQUENCES: usize = 4;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/t5-gated")
}

fn server() -> Server {
    let open = OpenOptions {
        kv_element: KvElement::F32,
        ..OpenOptions::default()
    };
    let model = Model::open(&folder(), open).unwrap();
    let mut plans = model.plans();
    for plan in &mut plans {
        passes::apply(plan, &[]).unwrap();
    }
    let prepare = PrepareOptions {
        bounds: plans[0].bounds(64, SEQUENCES),
        kv_pages: PAGES,
        page_layout: PageLayout::new(&plans[0].kv_groups, 32),
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(1).prepare(&plans, &*model.tensors, prepare);
    Server::with(Setup {
        executable: Some(executable.unwrap()),
        max_sequences: SEQUENCES,
        tokenizer: Some(model.tokenizer().unwrap()),
        vocabulary: model.vocab_size,
        decoder_start: model.decoder_start(),
        options: AppOptions {
            template: None,
            ..options()
        },
        ..Setup::default()
    })
}

fn reference() -> Value {
    let json = std::fs::read(folder().join("cases.json")).unwrap();
    let reference: Value = serde_json::from_slice(&json).unwrap();
    reference["greedy"].clone()
}

#[test]
fn a_completion_is_transformers_answer_to_the_encoded_prompt() {
    let (server, reference) = (server(), reference());
    let tokens: Vec<u32> = serde_json::from_value(reference["tokens"].clone()).unwrap();
    let body = json!({
        "prompt": reference["text"], "max_tokens": tokens.len(), "temperature": 0, "logprobs": 1,
        "return_token_ids": true, "n": 2,
    });
    let answer = server.complete(body.clone());
    let text = server.tokenizer.decode(&tokens, true);
    for choice in answer["choices"].as_array().unwrap() {
        assert_eq!(choice["token_ids"], reference["tokens"]);
        assert_eq!(choice["text"], text);
        assert_eq!(
            choice["logprobs"]["token_logprobs"]
                .as_array()
                .unwrap()
                .len(),
            tokens.len()
        );
    }
    let encoded = reference["prompt"].as_array().unwrap().len();
    assert_eq!(answer["usage"]["prompt_tokens"], encoded);
    assert_eq!(answer["usage"]["completion_tokens"], 2 * tokens.len());
    let mut streamed = String::new();
    for chunk in server.chunks("/v1/completions", body) {
        for choice in chunk["choices"].as_array().unwrap() {
            if choice["index"] == 0 {
                streamed.push_str(choice["text"].as_str().unwrap());
            }
        }
    }
    assert_eq!(streamed, text);
}

#[test]
fn company_changes_nothing() {
    let server = server();
    let ask = |client: u32| {
        let prompt: Vec<u32> = (0..5 + 9 * client)
            .map(|i| (i * 7 + client) % 700 + 3)
            .collect();
        let body = json!({
            "prompt": prompt, "max_tokens": 20, "temperature": 0.8, "seed": client, "logprobs": 2,
            "return_token_ids": true,
        });
        server.complete(body)["choices"][0].clone()
    };
    let alone: Vec<Value> = (0..6).map(ask).collect();
    assert!((1..6).all(|client| alone[client] != alone[0]));
    std::thread::scope(|scope| {
        for (client, expected) in alone.iter().enumerate() {
            let ask = &ask;
            scope.spawn(move || (0..3).for_each(|_| assert_eq!(&ask(client as u32), expected)));
        }
    });
    server.wait_until_idle();
    assert_eq!(server.engine.stats().blocks_used, 0);
}

#[test]
fn what_it_cannot_do_is_said_with_the_numbers() {
    let server = server();
    let refused = |path: &str, body: Value, status: u16, message: &str| {
        let response = server.post(path, &body.to_string());
        let found = response.json()["error"]["message"].clone();
        assert_eq!((response.status, found), (status, json!(message)));
    };
    refused(
        "/v1/completions",
        json!({"prompt": vec![5; 65], "max_tokens": 3}),
        400,
        "prompt has 65 tokens and asks for 3: the encoder takes 64 tokens, the decoder makes 255",
    );
    refused(
        "/v1/completions",
        json!({"prompt": [5, 6], "max_tokens": 256}),
        400,
        "prompt has 2 tokens and asks for 256: the encoder takes 64 tokens, the decoder makes 255",
    );
    refused(
        "/v1/completions",
        json!({"prompt": [5, 6], "max_tokens": 1, "echo": true, "logprobs": 1}),
        400,
        "prompt_logprobs asks how likely the prompt is: an encoder reads this model's prompts, and no token of them is predicted",
    );
    refused(
        "/v1/chat/completions",
        json!({"messages": [{"role": "user", "content": "hi"}]}),
        400,
        "this model has no chat template: use /v1/completions",
    );
    // Where nothing is said of the length, an answer is as long as any.
    let answer = server.complete(json!({"prompt": vec![5; 64], "ignore_eos": true}));
    assert_eq!(answer["usage"]["prompt_tokens"], 64);
}
