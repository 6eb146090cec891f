//! Embeddings on the real backend: those of transformers in f32, from the engine.

mod common;

use common::{fixtures, json, tiny};
use mettle_cpu::CpuBackend;
use mettle_engine::{Engine, EngineHandle, EngineOptions, Event, Pooling, Request};
use mettle_models::Model;
use mettle_plan::{Backend, PageLayout, PrepareOptions, passes};

/// The largest |difference| of an element; elements are around 1.
const TOLERANCE: f32 = 1e-3;

fn start(model: &Model, batched_tokens: usize) -> EngineHandle {
    start_on(&CpuBackend::new(2), model, batched_tokens)
}

fn start_on(backend: &dyn Backend, model: &Model, batched_tokens: usize) -> EngineHandle {
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let kv_pages = page_layout.sequence_pages(512);
    let prepare = PrepareOptions {
        bounds: plan.bounds(batched_tokens, 1),
        kv_pages,
        page_layout,
        taps: Vec::new(),
    };
    let executable = backend.prepare(&[plan], &*model.tensors, prepare);
    let options = EngineOptions {
        max_batched_tokens: batched_tokens,
        ..EngineOptions::new(model.vocab_size, 512, kv_pages)
    };
    Engine::start(executable.unwrap(), options).unwrap()
}

fn vector(engine: &EngineHandle, request: Request) -> Vec<f32> {
    let mut stream = engine.submit(request).unwrap();
    match stream.recv() {
        Some(Event::Finished(end)) => end.pooled.expect("asked for"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn vectors_are_those_of_transformers() {
    let expected = json(&fixtures().join("embeddings.json"));
    for name in ["llama", "llama31", "mistral", "qwen2", "qwen3", "smollm2"] {
        let model = tiny(name, "");
        let text = common::reference(name).tokens;
        for batched_tokens in [512, 33] {
            let engine = start(&model, batched_tokens);
            for length in [7, 65, 300] {
                for (key, pooling) in [("last", Pooling::Last), ("mean", Pooling::Mean)] {
                    let request = Request::pooled(text[..length].to_vec(), pooling);
                    let found = vector(&engine, request);
                    let expected = &expected[name][length.to_string()][key];
                    let expected = expected.as_array().expect("a list");
                    assert_eq!(found.len(), expected.len(), "{name}");
                    for (column, (found, expected)) in found.iter().zip(expected).enumerate() {
                        let expected = expected.as_f64().unwrap() as f32;
                        assert!(
                            (found - expected).abs() < TOLERANCE,
                            "{name}, {length} tokens in chunks of {batched_tokens}, {key}, column {column}: {found}, not {expected}"
                        );
                    }
                }
            }
        }
    }
}

/// No step of an embedding runs the head, and what it moves is counted.
#[test]
fn the_head_is_not_computed() {
    let model = tiny("llama", "");
    let engine = start(&model, 512);
    let text = common::reference("llama").tokens;
    let linears = |engine: &EngineHandle| -> u64 {
        let dispatches = engine.counts().dispatches();
        let all = dispatches.iter();
        all.filter(|(name, _)| name.starts_with("linear"))
            .map(|(_, count)| count)
            .sum()
    };
    vector(&engine, Request::pooled(text[..40].to_vec(), Pooling::Mean));
    let (pooled, bytes) = (linears(&engine), engine.counts().bytes_moved());
    let mut stream = engine
        .submit(Request::new(text[40..80].to_vec(), 1))
        .unwrap();
    while stream.recv().is_some() {}
    assert_eq!(linears(&engine) - pooled, pooled + 1);
    assert!(pooled > 0 && bytes > 0);
    assert_ne!(engine.counts().bytes_moved() - bytes, bytes);
}

/// The same through the GPU's kernels, in f16, which has 11 bits: elements are around 1 and each is the end of hundreds of
/// roundings.
#[cfg(feature = "emulator")]
#[test]
fn vectors_come_from_the_emulated_gpu_too() {
    use mettle_gpu::emulator::EmulatorGpu;
    use mettle_gpu::{GpuBackend, Precision};
    use mettle_kernels::select::DeviceProfile;
    const TOLERANCE: f32 = 2e-2;
    let open = || Ok(EmulatorGpu::open(1, DeviceProfile::apple(10)));
    let backend = GpuBackend::new(open, Precision::default()).unwrap();
    let model = common::open(
        &fixtures().join("models/qwen3"),
        mettle_plan::KvElement::F16,
    );
    let text = common::reference("qwen3").tokens;
    let engine = start_on(&backend, &model, 33);
    let expected = json(&fixtures().join("embeddings.json"));
    for (key, pooling) in [("last", Pooling::Last), ("mean", Pooling::Mean)] {
        let found = vector(&engine, Request::pooled(text[..65].to_vec(), pooling));
        let expected = expected["qwen3"]["65"][key].as_array().expect("a list");
        let difference = |(found, expected): (&f32, &serde_json::Value)| {
            (found - expected.as_f64().unwrap() as f32).abs()
        };
        let largest = found
            .iter()
            .zip(expected)
            .map(difference)
            .fold(0.0, f32::max);
        println!("{key}: {largest}");
        assert!(largest < TOLERANCE, "{key}: {largest}");
    }
    // The head's results are f32, and nothing else's are.
    let dispatches = engine.counts().dispatches();
    assert!(dispatches.keys().all(|name| !name.contains("f16_f32")));
    assert!(dispatches.keys().any(|name| name.starts_with("linear")));
}
