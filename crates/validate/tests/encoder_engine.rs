//! T5 in the engine on the real backend: the answer that transformers gives, and company, chunks of others, small pools and
//! siblings change no bit of it.

mod common;

use common::answers::{Answer, read};
use common::{fixtures, ids, json, tiny};
use mettle_cpu::CpuBackend;
use mettle_engine::{Engine, EngineHandle, EngineOptions, Request, SamplingParams};
use mettle_models::Model;
use mettle_plan::{Backend, PageLayout, PrepareOptions, passes};

const NAMES: [&str; 2] = ["t5", "t5-gated"];
const CONTEXT: usize = 320;
const REQUESTS: usize = 12;

fn start(model: &Model, sequences: usize, batched_tokens: usize, kv_pages: usize) -> EngineHandle {
    let mut plans = model.plans();
    for plan in &mut plans {
        passes::apply(plan, &[]).unwrap();
    }
    let prepare = PrepareOptions {
        bounds: plans[0].bounds(batched_tokens, sequences),
        kv_pages,
        page_layout: PageLayout::new(&plans[0].kv_groups, 32),
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(2)
        .prepare(&plans, &*model.tensors, prepare)
        .unwrap();
    let options = EngineOptions {
        max_batched_tokens: batched_tokens,
        max_sequences: sequences,
        decoder_start: model.decoder_start(),
        ..EngineOptions::new(model.vocab_size, CONTEXT, kv_pages)
    };
    Engine::start(executable, options).unwrap()
}

#[test]
fn the_answer_is_transformers() {
    for name in NAMES {
        let reference = json(&fixtures().join("models").join(name).join("cases.json"));
        let greedy = &reference["greedy"];
        let (prompt, expected) = (ids(&greedy["prompt"]), ids(&greedy["tokens"]));
        let lead = greedy["least_lead"].as_f64().unwrap();
        assert!(lead > 2e-3, "rounding must not choose another token");
        for file in ["", "model.gguf"] {
            let model = tiny(name, file);
            let text = greedy["text"].as_str().unwrap();
            let tokenizer = model.tokenizer().unwrap();
            let specials = mettle_text::SpecialTokens::Parse;
            assert_eq!(tokenizer.encode(text, specials, true).unwrap(), prompt);
            let engine = start(&model, 1, 64, 20);
            let request = Request {
                logprobs: Some(1),
                ..Request::new(prompt.clone(), expected.len())
            };
            let answer = read(engine.submit(request).unwrap());
            let tokens: Vec<u32> = answer[0].iter().map(|(id, _)| *id).collect();
            assert_eq!(tokens, expected, "{name} {file}");
        }
    }
}

/// Inputs of many lengths; greedy and drawn, alone and with siblings.
fn request(text: &[u32], index: usize) -> Request {
    let drawn = SamplingParams {
        temperature: 0.9,
        top_p: 0.95,
        repetition_penalty: 1.1,
        seed: Some(index as u64),
        ..SamplingParams::default()
    };
    Request {
        n: if index % 5 == 4 { 3 } else { 1 },
        logprobs: Some(5),
        sampling: match index % 2 {
            0 => SamplingParams::default(),
            _ => drawn,
        },
        ..Request::new(text[index * 3..][..1 + index * 37 % 250].to_vec(), 45)
    }
}

#[test]
fn company_and_preemption_change_no_bit() {
    for name in NAMES {
        let model = tiny(name, "");
        let reference = json(&fixtures().join("models").join(name).join("cases.json"));
        let text = ids(&reference["cases"][2]["encoder"]);
        let alone: Vec<Answer> = (0..REQUESTS)
            .map(|index| {
                let engine = start(&model, 1, 256, 20);
                read(engine.submit(request(&text, index)).unwrap())
            })
            .collect();
        // Room for all, and for a longest one and a little more: most are preempted.
        for (sequences, batched_tokens, pages) in [(16, 512, 200), (16, 256, 24), (3, 300, 14)] {
            let engine = start(&model, sequences, batched_tokens, pages);
            let streams: Vec<_> = (0..REQUESTS)
                .map(|index| engine.submit(request(&text, index)).unwrap())
                .collect();
            for (index, (stream, alone)) in streams.into_iter().zip(&alone).enumerate() {
                let shape = (sequences, batched_tokens, pages);
                assert_eq!(&read(stream), alone, "{name}, request {index}, {shape:?}");
            }
            let stats = engine.stats();
            assert_eq!(stats.preemptions > 0, pages < 200, "{stats:?}");
            assert_eq!(stats.prefix_hits, 0);
            engine.shutdown();
            assert_eq!(engine.stats().blocks_used, 0);
        }
    }
}
