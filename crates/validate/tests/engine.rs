//! The engine on the real backend: a prefix hit, chunks and company change no bit of an answer.

mod common;

use common::{default_model, json, open, tiny};
use mettle_cpu::CpuBackend;
use mettle_engine::{Engine, EngineHandle, EngineOptions, Event, FinishReason, Request};
use mettle_models::Model;
use mettle_plan::{Backend, KvElement, PageLayout, PrepareOptions, passes};

fn start(model: &Model, batched_tokens: usize, sequences: usize) -> EngineHandle {
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let context = model.context_length.min(512);
    // While a step runs, a window also holds the pages that it slides off.
    let sliding = (page_layout.groups.len() - 1) * batched_tokens.min(context).div_ceil(32);
    let kv_pages = sequences * (page_layout.sequence_pages(context) + sliding);
    let prepare = PrepareOptions {
        bounds: plan.bounds(batched_tokens, sequences),
        kv_pages,
        page_layout,
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(2)
        .prepare(&[plan], &*model.tensors, prepare)
        .unwrap();
    let options = EngineOptions {
        max_batched_tokens: batched_tokens,
        max_sequences: sequences,
        ..EngineOptions::new(model.vocab_size, context, kv_pages)
    };
    Engine::start(executable, options).unwrap()
}

/// Ids and log-probabilities (as bits) of a greedy answer, and how many prompt tokens came from the cache.
#[derive(Debug, PartialEq)]
struct Answer {
    tokens: Vec<(u32, Vec<(u32, u32)>)>,
    cached: usize,
}

fn request(prompt: &[u32]) -> Request {
    let mut request = Request::new(prompt.to_vec(), 12);
    request.logprobs = Some(20);
    request.ignore_eos = true;
    request
}

fn answer(engine: &EngineHandle, request: Request) -> Answer {
    let mut stream = engine.submit(request).unwrap();
    let mut tokens = Vec::new();
    while let Some(event) = stream.recv() {
        match event {
            Event::Token { id, logprobs, .. } => {
                let top = logprobs.expect("asked for").top;
                let bits = top.iter().map(|(id, l)| (*id, l.to_bits())).collect();
                tokens.push((id, bits));
            }
            Event::Finished(end) => {
                assert_eq!(end.reason, FinishReason::Length);
                let cached = end.usage.cached;
                return Answer { tokens, cached };
            }
            Event::PromptLogprobs(_) => {}
        }
    }
    panic!("the stream ended without a last event")
}

fn check(model: &Model, prompt: &[u32]) {
    let cold = answer(&start(model, 512, 1), request(prompt));
    assert_eq!(cold.cached, 0);
    for batched_tokens in [1, 7, 32, 33, 512] {
        let engine = start(model, batched_tokens, 1);
        let first = answer(&engine, request(prompt));
        assert_eq!(first, cold, "in chunks of {batched_tokens}");
        let again = answer(&engine, request(prompt));
        assert!(again.cached >= 32, "the second time hits the prefix");
        assert_eq!(again.tokens, cold.tokens, "after a prefix hit");
        let mut longer = prompt.to_vec();
        longer.extend([5, 6, 7]);
        let continued = answer(&engine, request(&longer));
        assert!(continued.cached >= 32);
        let alone = answer(&start(model, 512, 1), request(&longer));
        assert_eq!(
            continued.tokens, alone.tokens,
            "a longer prompt after a prefix hit"
        );
    }
    let engine = start(model, 64, 3);
    let others = [&prompt[1..], &prompt[2..40]];
    let streams = others.map(|p| engine.submit(request(p)).unwrap());
    assert_eq!(
        answer(&engine, request(prompt)).tokens,
        cold.tokens,
        "in company"
    );
    drop(streams);
}

#[test]
fn tiny_model() {
    let model = tiny("smollm2", "");
    check(&model, &common::reference("smollm2").tokens[..100]);
}

/// Alone, in chunks, after a prefix hit and in company, with windows that give their pages back.
#[test]
fn windowed_models() {
    for name in ["gemma2", "gemma4"] {
        let model = tiny(name, "");
        check(&model, &common::reference(name).tokens[..200]);
    }
}

#[test]
fn default_model_answers_alike() {
    let model = open(&default_model(), KvElement::F16);
    let texts = json(&common::fixtures().join("smollm2/reference.json"));
    let tokens = common::ids(&texts["texts"]["code"]["tokens"]);
    check(&model, &tokens[..70]);
}
