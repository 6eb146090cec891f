//! Continuous batching on the real backend: company, chunks, prefix hits, preemption and forks change no bit, neither of
//! tokens nor of embeddings.

mod common;

use common::answers::{Answer, read};
use common::tiny;
use mettle_cpu::CpuBackend;
use mettle_engine::{
    Engine, EngineHandle, EngineOptions, Event, FinishReason, Pooling, Request, RequestStream,
    SamplingParams,
};
use mettle_models::Model;
use mettle_plan::{
    Backend, BackendError, BlockId, Counts, Executable, MemoryUse, OutputKind, PageLayout,
    PrepareOptions, Sizes, StepInput, StepOutput, Ticket, passes,
};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

const PAGE_TOKENS: usize = 32;
const CONTEXT: usize = 256;
const REQUESTS: usize = 24;

struct Shape {
    sequences: usize,
    batched_tokens: usize,
    /// Pages of the pool, in contexts.
    contexts: usize,
}

/// The real executable, whose first step waits until the gate is dropped: what is submitted before runs together.
struct Held {
    executable: Box<dyn Executable>,
    gate: Option<Receiver<()>>,
}

impl Executable for Held {
    fn bounds(&self) -> &Sizes {
        self.executable.bounds()
    }
    fn page_layout(&self) -> &PageLayout {
        self.executable.page_layout()
    }
    fn memory(&self) -> MemoryUse {
        self.executable.memory()
    }
    fn gives(&self, output: OutputKind) -> bool {
        self.executable.gives(output)
    }
    fn submit(&mut self, step: &StepInput) -> Result<Ticket, BackendError> {
        if let Some(gate) = self.gate.take() {
            let _ = gate.recv();
        }
        self.executable.submit(step)
    }
    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput<'_>, BackendError> {
        self.executable.wait(ticket)
    }
    fn copy_pages(&mut self, copies: &[(BlockId, BlockId)]) -> Result<(), BackendError> {
        self.executable.copy_pages(copies)
    }
    fn tap(&self, name: &str) -> Option<&[f32]> {
        self.executable.tap(name)
    }
    fn counts(&self) -> Arc<Counts> {
        self.executable.counts()
    }
}

fn start(model: &Model, shape: &Shape) -> (EngineHandle, Sender<()>) {
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, PAGE_TOKENS);
    let kv_pages = shape.contexts * page_layout.sequence_pages(CONTEXT);
    let prepare = PrepareOptions {
        bounds: plan.bounds(shape.batched_tokens, shape.sequences),
        kv_pages,
        page_layout,
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(2)
        .prepare(&[plan], &*model.tensors, prepare)
        .unwrap();
    let options = EngineOptions {
        max_batched_tokens: shape.batched_tokens,
        max_sequences: shape.sequences,
        ..EngineOptions::new(model.vocab_size, CONTEXT, kv_pages)
    };
    let (gate, opened) = channel();
    let held = Held {
        executable,
        gate: Some(opened),
    };
    (Engine::start(Box::new(held), options).unwrap(), gate)
}

/// Prompts of many lengths, neighbours with a common beginning; greedy and drawn, alone and with siblings.
fn request(text: &[u32], index: usize) -> Request {
    let drawn = SamplingParams {
        temperature: 0.9,
        top_p: 0.95,
        repetition_penalty: 1.1,
        seed: Some(index as u64),
        ..SamplingParams::default()
    };
    let shared = &text[index / 4 * 5..][..70];
    let own = &text[100 + index..][..index * 5 % 60];
    Request {
        n: if index % 6 == 5 { 3 } else { 1 },
        logprobs: Some(5),
        sampling: match index % 2 {
            0 => SamplingParams::default(),
            _ => drawn,
        },
        ..Request::new([shared, own].concat(), 40)
    }
}

fn together(engine: &EngineHandle, text: &[u32], gate: Option<Sender<()>>) -> Vec<Answer> {
    let streams: Vec<_> = (0..REQUESTS)
        .map(|index| engine.submit(request(text, index)).unwrap())
        .collect();
    drop(gate);
    streams.into_iter().map(read).collect()
}

fn check(name: &str) {
    let model = tiny(name, "");
    let text = common::reference(name).tokens;
    let one = Shape {
        sequences: 1,
        batched_tokens: 512,
        contexts: 1,
    };
    // Without anything left by the one before.
    let alone: Vec<Answer> = (0..REQUESTS)
        .map(|index| {
            let (engine, _) = start(&model, &one);
            read(engine.submit(request(&text, index)).unwrap())
        })
        .collect();
    let shapes = [
        (32, 512, 16),
        (32, 40, 16),
        // Pools of two contexts and of one: most requests are preempted, some again and again.
        (32, 512, 2),
        (32, 33, 1),
        (5, 64, 1),
    ];
    for (sequences, batched_tokens, contexts) in shapes {
        let shape = Shape {
            sequences,
            batched_tokens,
            contexts,
        };
        let (engine, gate) = start(&model, &shape);
        let mut gate = Some(gate);
        for round in ["first", "after prefix hits"] {
            let found = together(&engine, &text, gate.take());
            for (index, (found, alone)) in found.iter().zip(&alone).enumerate() {
                assert_eq!(
                    found, alone,
                    "{name}, request {index}, {sequences} sequences, {batched_tokens} tokens, {contexts} contexts, {round}"
                );
            }
        }
        let stats = engine.stats();
        assert_eq!(stats.preemptions > 0, contexts <= 2, "{stats:?}");
        assert!(stats.prefix_hits > 0);
        let most = engine.recent_steps().iter().map(|s| s.sequences).max();
        assert!(
            contexts < 16 || batched_tokens < 512 || most >= Some(24),
            "{most:?}"
        );
        engine.shutdown();
        assert_eq!(engine.stats().blocks_used, 0);
    }
}

/// Both ways of pooling, over prompts of many lengths that share beginnings.
fn pooled(text: &[u32], index: usize) -> Request {
    let pooling = [Pooling::Last, Pooling::Mean][index % 2];
    Request::pooled(request(text, index).prompt, pooling)
}

fn read_vector(mut stream: RequestStream) -> Vec<u32> {
    let Some(Event::Finished(end)) = stream.recv() else {
        panic!("no event comes before the end");
    };
    assert_eq!(end.reason, FinishReason::Length);
    let vector = end.pooled.expect("asked for");
    vector.iter().map(|value| value.to_bits()).collect()
}

/// The bits of a vector depend on nothing but its prompt, with answers being made in the same engine.
fn check_vectors(name: &str) {
    let model = tiny(name, "");
    let text = common::reference(name).tokens;
    let one = Shape {
        sequences: 1,
        batched_tokens: 512,
        contexts: 1,
    };
    let (engine, _) = start(&model, &one);
    let alone: Vec<Vec<u32>> = (0..REQUESTS)
        .map(|index| {
            let mut request = pooled(&text, index);
            // Nothing is found in the cache.
            request.cache_salt = Some(index.to_string());
            read_vector(engine.submit(request).unwrap())
        })
        .collect();
    let answer_alone = {
        let (engine, _) = start(&model, &one);
        read(engine.submit(request(&text, 1)).unwrap())
    };
    for (sequences, batched_tokens, contexts) in
        [(32, 512, 16), (32, 40, 16), (5, 1, 1), (32, 33, 1)]
    {
        let shape = Shape {
            sequences,
            batched_tokens,
            contexts,
        };
        let (engine, gate) = start(&model, &shape);
        let mut gate = Some(gate);
        for round in ["first", "after prefix hits"] {
            let answer = engine.submit(request(&text, 1)).unwrap();
            let streams: Vec<_> = (0..REQUESTS)
                .map(|index| engine.submit(pooled(&text, index)).unwrap())
                .collect();
            drop(gate.take());
            for (index, (stream, alone)) in streams.into_iter().zip(&alone).enumerate() {
                assert_eq!(
                    &read_vector(stream),
                    alone,
                    "{name}, vector {index}, {sequences} sequences, {batched_tokens} tokens, {contexts} contexts, {round}"
                );
            }
            assert_eq!(read(answer), answer_alone, "{name}, {round}");
        }
        assert!(engine.stats().prefix_hits > 0);
        engine.shutdown();
        assert_eq!(engine.stats().blocks_used, 0);
    }
}

#[test]
fn smollm2() {
    check("smollm2");
}

#[test]
fn smollm2_vectors() {
    check_vectors("smollm2");
}

#[test]
fn qwen3_vectors() {
    check_vectors("qwen3");
}

#[test]
fn qwen3() {
    check("qwen3");
}

#[test]
fn qwen2moe() {
    check("qwen2moe");
}
