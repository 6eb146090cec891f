//! An encoder on the real backend: transformers' hidden states and embeddings, whatever else is in the step.

mod common;

use common::widened::Widened;
use common::{fixtures, ids, json, tiny};
use mettle_cpu::{CpuBackend, Isa};
use mettle_engine::{
    Engine, EngineError, EngineHandle, EngineOptions, Event, Pooling, Request, RequestStream,
};
use mettle_models::{LoadFormat, Model, OpenOptions};
use mettle_plan::{
    Activation, Backend, Executable, Expr, InputToken, KvElement, Op, OutputKind, PageLayout, Plan,
    PrepareOptions, StepInput, StepOutput, TokenRow, passes,
};
use mettle_tensor::DType;
use mettle_text::SpecialTokens;
use std::sync::Arc;

/// The largest |difference| of an element; elements are around 8.
const TOLERANCE: f32 = 1e-3;
const CONTEXT: usize = 300;
const SEQUENCES: usize = 8;
const FILES: [&str; 2] = ["", "model.gguf"];

fn fused(model: &Model, disabled: &[String]) -> Plan {
    let mut plan = model.plan();
    passes::apply(&mut plan, disabled).unwrap();
    plan
}

fn prepare(model: &Model, backend: &dyn Backend, plan: Plan) -> Box<dyn Executable> {
    let options = PrepareOptions {
        bounds: plan.bounds(2 * CONTEXT, SEQUENCES),
        kv_pages: 0,
        page_layout: PageLayout::new(&plan.kv_groups, 32),
        taps: Vec::new(),
    };
    backend.prepare(&[plan], &*model.tensors, options).unwrap()
}

/// The hidden states of texts that are computed together, each text's.
fn hidden(executable: &mut dyn Executable, texts: &[&[u32]]) -> Vec<Vec<f32>> {
    let mut step = StepInput::new(0);
    for text in texts {
        step.push_sequence(text.iter().map(|t| InputToken::Host(*t)), 0);
    }
    step.output = OutputKind::Hidden;
    let rows = step.tokens.len() as u32;
    step.logit_rows.extend((0..rows).map(TokenRow));
    let ticket = executable.submit(&step).unwrap();
    let StepOutput::Hidden { width, values } = executable.wait(ticket).unwrap() else {
        panic!("hidden states were asked for");
    };
    let mut rest = values;
    let of_text = |text: &&[u32]| {
        let (own, others) = rest.split_at(text.len() * width);
        rest = others;
        own.to_vec()
    };
    texts.iter().map(of_text).collect()
}

fn tokens() -> Vec<u32> {
    ids(&json(&fixtures().join("models/bert/hidden.json"))["tokens"])
}

/// Lengths, and what transformers gives for so many of the tokens.
fn expected() -> Vec<(usize, Vec<f32>)> {
    let bytes = std::fs::read(fixtures().join("models/bert/hidden.f32")).unwrap();
    let values: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let width = values.len() / (7 + 65 + 300);
    let mut rest = &values[..];
    let of_length = |length: usize| {
        let (own, others) = rest.split_at(length * width);
        rest = others;
        (length, own.to_vec())
    };
    [7, 65, 300].map(of_length).to_vec()
}

fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |largest, d| match d.is_nan() {
        true => f32::INFINITY,
        false => largest.max(d),
    })
}

#[test]
fn hidden_states_are_those_of_transformers() {
    let tokens = tokens();
    for file in FILES {
        let model = tiny("bert", file);
        let mut executable = prepare(&model, &CpuBackend::new(2), fused(&model, &[]));
        for (length, expected) in expected() {
            let found = hidden(&mut *executable, &[&tokens[..length]]);
            let largest = largest_difference(&found[0], &expected);
            println!("{file:?} {length}: {largest}");
            assert!(largest < TOLERANCE, "{file:?}, {length} tokens: {largest}");
        }
    }
}

/// What the tolerance is worth: each of these mistakes is well beyond it.
#[test]
fn mistakes_show() {
    let (model, tokens) = (tiny("bert", ""), tokens());
    let (length, expected) = expected().swap_remove(1);
    type Mistake = fn(&mut Plan);
    let mistakes: [(&str, Mistake); 4] = [
        ("GELU by tanh", |plan| {
            for node in &mut plan.nodes {
                if let Op::Elementwise(o) = &mut node.op
                    && o.expr == Expr::Apply(Activation::Gelu)
                {
                    o.expr = Expr::Apply(Activation::GeluTanh);
                }
            }
        }),
        ("another epsilon", |plan| {
            for node in &mut plan.nodes {
                if let Op::LayerNorm(o) = &mut node.op {
                    o.eps = 1e-12;
                }
            }
        }),
        ("another scale of scores", |plan| {
            for node in &mut plan.nodes {
                if let Op::Attention(o) = &mut node.op {
                    o.scale *= 1.1;
                }
            }
        }),
        ("heads in pairs", |plan| {
            for node in &mut plan.nodes {
                if let Op::Attention(o) = &mut node.op {
                    (o.heads, o.kv_heads) = (o.heads / 2, o.kv_heads / 2);
                    (o.head_dim, o.value_dim) = (2 * o.head_dim, 2 * o.value_dim);
                }
            }
        }),
    ];
    for (name, mistake) in mistakes {
        let mut plan = fused(&model, &[]);
        mistake(&mut plan);
        let mut executable = prepare(&model, &CpuBackend::new(2), plan);
        let found = hidden(&mut *executable, &[&tokens[..length]]);
        let largest = largest_difference(&found[0], &expected);
        assert!(largest > 10.0 * TOLERANCE, "{name}: {largest}");
    }
}

#[test]
fn company_threads_instruction_sets_and_passes_change_no_bit() {
    let tokens = tokens();
    let texts = [
        &tokens[..65],
        &tokens[100..101],
        &tokens[7..300],
        &tokens[20..52],
        &tokens[..7],
        &tokens[3..36],
    ];
    for file in FILES {
        let model = tiny("bert", file);
        let scalar = CpuBackend::with_isa(1, Isa::Scalar);
        let mut executable = prepare(&model, &scalar, fused(&model, &[]));
        let alone = texts.map(|text| hidden(&mut *executable, &[text]).swap_remove(0));
        let check = |backend: &CpuBackend, disabled: &[String], how: &str| {
            let mut executable = prepare(&model, backend, fused(&model, disabled));
            for _ in 0..2 {
                assert!(hidden(&mut *executable, &texts) == alone, "{file:?}, {how}");
            }
        };
        for threads in 1..=3 {
            check(
                &CpuBackend::new(threads),
                &[],
                &format!("{threads} threads"),
            );
        }
        for isa in Isa::available() {
            let backend = CpuBackend::with_isa(2, isa);
            check(&backend, &[], isa.name());
        }
        for pass in passes::ALL {
            let disabled = [pass.name.to_owned()];
            check(&CpuBackend::new(2), &disabled, pass.name);
        }
    }
}

/// The first token's state is that of the whole text, and is not another's, where only it is wanted.
#[test]
fn wanted_rows_alone_have_the_same_bits() {
    let (model, tokens) = (tiny("bert", ""), tokens());
    let text = &tokens[..65];
    let disabled = ["gather-early".to_owned()];
    let mut executable = prepare(&model, &CpuBackend::new(1), fused(&model, &disabled));
    let all = hidden(&mut *executable, &[text]).swap_remove(0);
    for wanted in [vec![0], vec![64, 3, 40], vec![]] {
        let mut executable = prepare(&model, &CpuBackend::new(2), fused(&model, &[]));
        let mut step = StepInput::new(0);
        step.push_sequence(text.iter().map(|t| InputToken::Host(*t)), 0);
        step.output = OutputKind::Hidden;
        step.logit_rows
            .extend(wanted.iter().map(|row| TokenRow(*row)));
        let ticket = executable.submit(&step).unwrap();
        let StepOutput::Hidden { width, values } = executable.wait(ticket).unwrap() else {
            panic!("hidden states were asked for");
        };
        let of = |row: &u32| &all[*row as usize * width..(*row as usize + 1) * width];
        let expected: Vec<f32> = wanted.iter().flat_map(of).copied().collect();
        assert!(values == expected, "{wanted:?}");
    }
}

/// Widths that blocks of all types divide.
const WIDE: &str = r#"{
    "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 400,
    "max_position_embeddings": 320, "type_vocab_size": 2, "layer_norm_eps": 1e-12
}"#;

#[test]
fn every_weight_type_computes_what_its_values_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, WIDE).unwrap();
    let tokens = tokens();
    for dtype in DType::ALL {
        let options = OpenOptions {
            load_format: LoadFormat::Dummy { seed: 7 },
            weight_type: Some(dtype),
            kv_element: KvElement::F32,
            context_length: None,
        };
        let mut model = Model::open(&path, options).unwrap();
        let states = |model: &Model, isa: Isa| {
            let backend = CpuBackend::with_isa(2, isa);
            let mut executable = prepare(model, &backend, fused(model, &[]));
            hidden(&mut *executable, &[&tokens[..65], &tokens[..7]]).concat()
        };
        let found = states(&model, Isa::detect());
        assert!(found == states(&model, Isa::Scalar), "{dtype}");
        model.tensors = Arc::new(Widened::new(&*model.tensors));
        let largest = largest_difference(&found, &states(&model, Isa::detect()));
        println!("{dtype}: {largest}");
        // Types of integers round activations to 15 bits: 3e-4 at the most.
        assert!(largest < TOLERANCE, "{dtype}: {largest}");
    }
}

#[test]
fn every_kernel_of_the_plan_runs_and_no_other() {
    let model = tiny("bert", "");
    let layers = model.spec.layers() as u64;
    let mut executable = prepare(&model, &CpuBackend::new(2), fused(&model, &[]));
    hidden(&mut *executable, &[&tokens()[..9], &tokens()[..40]]);
    let linear = format!("linear/f32/{}", Isa::detect().name());
    let expected = [
        // Positions and types; each half's sum is in its projection.
        ("add", 2),
        ("attention_rows", layers),
        ("embed", 2),
        // Of attention's output, and of what it is added to.
        ("gather", 2),
        ("gelu", layers),
        ("layer_norm", 1 + 2 * layers),
        // Three parts of the fused one.
        (&linear, 6 * layers),
    ];
    let found: Vec<(&str, u64)> = executable.dispatches().into_iter().collect();
    assert_eq!(found, expected);
}

#[test]
fn steps_that_no_table_or_cache_is_for_are_refused() {
    let model = tiny("bert", "");
    let mut executable = prepare(&model, &CpuBackend::new(1), fused(&model, &[]));
    let mut step = StepInput::new(0);
    step.output = OutputKind::Hidden;
    step.push_sequence([InputToken::Host(1)].into_iter(), 3);
    let error = executable.submit(&step).unwrap_err().to_string();
    assert!(
        error.ends_with("sequence 0: 1 of its 4 tokens, and no cache holds the others"),
        "{error}"
    );
    step.clear();
    step.push_sequence((0..321).map(|_| InputToken::Host(1)), 0);
    let error = executable.submit(&step).unwrap_err().to_string();
    assert!(error.ends_with("position 320 of 320"), "{error}");
    step.clear();
    step.output = OutputKind::Logits;
    step.push_sequence([InputToken::Host(1)].into_iter(), 0);
    assert!(executable.submit(&step).is_err());
}

fn start(model: &Model) -> EngineHandle {
    let executable = prepare(model, &CpuBackend::new(2), fused(model, &[]));
    let options = EngineOptions {
        max_batched_tokens: 2 * CONTEXT,
        max_sequences: SEQUENCES,
        ..EngineOptions::new(model.vocab_size, CONTEXT, 0)
    };
    Engine::start(executable, options).unwrap()
}

fn vector(mut stream: RequestStream) -> Vec<f32> {
    match stream.recv() {
        Some(Event::Finished(end)) => end.pooled.expect("asked for"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn texts_become_the_vectors_of_sentence_transformers() {
    let reference = json(&fixtures().join("models/bert/hidden.json"));
    let floats = |value: &serde_json::Value| -> Vec<f32> {
        let values = value.as_array().unwrap().iter();
        values.map(|v| v.as_f64().unwrap() as f32).collect()
    };
    for file in FILES {
        let model = tiny("bert", file);
        let (engine, tokenizer) = (start(&model), model.tokenizer().unwrap());
        for text in reference["texts"].as_array().unwrap() {
            let written = text["text"].as_str().unwrap();
            let encoded = tokenizer.encode(written, SpecialTokens::Parse, true);
            let encoded = encoded.unwrap();
            assert_eq!(encoded, ids(&text["ids"]), "{file:?} {written}");
            for (key, pooling) in [("mean", Pooling::Mean), ("cls", Pooling::First)] {
                let request = Request::pooled(encoded.clone(), pooling);
                let found = vector(engine.submit(request).unwrap());
                let largest = largest_difference(&found, &floats(&text[key]));
                assert!(largest < TOLERANCE, "{file:?} {key} {written}: {largest}");
            }
        }
    }
}

/// Requests of many lengths at once give what each gives alone, in fewer steps than requests.
#[test]
fn requests_share_steps_and_change_no_bit() {
    let (model, tokens) = (tiny("bert", ""), tokens());
    let engine = start(&model);
    let poolings = [Pooling::Mean, Pooling::First, Pooling::Last];
    let request = |index: usize| {
        let length = [5, 64, 300, 1, 33, 128, 250][index % 7];
        let first = (37 * index) % (300 - length + 1);
        Request::pooled(tokens[first..first + length].to_vec(), poolings[index % 3])
    };
    const COUNT: usize = 40;
    let alone: Vec<Vec<f32>> = (0..COUNT)
        .map(|index| vector(engine.submit(request(index)).unwrap()))
        .collect();
    let steps = |engine: &EngineHandle| engine.counts().dispatches()["gather"] / 2;
    let before = steps(&engine);
    assert_eq!(before, COUNT as u64);
    let streams: Vec<_> = (0..COUNT)
        .map(|index| engine.submit(request(index)).unwrap())
        .collect();
    let together: Vec<Vec<f32>> = streams.into_iter().map(vector).collect();
    assert!(together == alone);
    assert!(steps(&engine) - before < COUNT as u64);
    let stats = engine.stats();
    assert_eq!((stats.blocks_total, stats.prefix_queries), (0, 0));
}

#[test]
fn what_an_encoder_cannot_do_is_refused() {
    let (model, tokens) = (tiny("bert", ""), tokens());
    let engine = start(&model);
    let refused = |request: Request| engine.submit(request).unwrap_err();
    assert_eq!(
        refused(Request::new(tokens[..3].to_vec(), 5)),
        EngineError::OnlyPools
    );
    let long = [&tokens[..], &tokens[..1]].concat();
    assert_eq!(
        refused(Request::pooled(long, Pooling::Mean)),
        EngineError::ContextOverflow {
            prompt: 301,
            max_tokens: 0,
            context: 300
        }
    );
    let executable = prepare(&model, &CpuBackend::new(1), fused(&model, &[]));
    let small = EngineOptions {
        max_batched_tokens: 100,
        ..EngineOptions::new(model.vocab_size, CONTEXT, 0)
    };
    let error = Engine::start(executable, small).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the option max_batched_tokens is 100, it must be at least the context of 300: this model computes a text in one step"
    );
}
