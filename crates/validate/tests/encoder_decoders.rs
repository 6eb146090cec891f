//! T5 against transformers in f32, from both file formats; and the same bits whatever the chunks, threads, instruction sets
//! and passes.

mod common;

use common::{fixtures, tiny};
use mettle_cpu::{CpuBackend, Isa};
use mettle_models::Model;
use mettle_plan::{
    Backend, BlockId, ContextLen, InputToken, PageLayout, PrepareOptions, StepInput, TokenRow,
};
use mettle_validate::{Difference, Runner, RunnerOptions, log_softmax};
use serde_json::Value;

const NAMES: [&str; 2] = ["t5", "t5-gated"];

/// What f32 rounding in another order may cost: the same model in two frameworks.
const F32_TOLERANCE: f64 = 1e-3;

/// A text to encode, one to decode, and the log-probabilities of its last tokens.
struct Case {
    encoder: Vec<u32>,
    decoder: Vec<u32>,
    expected: Vec<f32>,
}

struct Cases {
    vocabulary: usize,
    cases: Vec<Case>,
    mutations: Vec<(String, f64)>,
}

fn cases(name: &str) -> Cases {
    let folder = fixtures().join("models").join(name);
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.join("cases.json")).unwrap()).unwrap();
    let values = std::fs::read(folder.join("cases.f32")).unwrap();
    let values: Vec<f32> = values
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let size = |key: &str| json[key].as_u64().unwrap() as usize;
    let (vocabulary, kept) = (size("vocab_size"), size("kept"));
    let listed = json["cases"].as_array().unwrap();
    assert_eq!(values.len(), listed.len() * kept * vocabulary);
    let rows = values.chunks_exact(kept * vocabulary);
    let cases = listed.iter().zip(rows).map(|(case, rows)| Case {
        encoder: common::ids(&case["encoder"]),
        decoder: common::ids(&case["decoder"]),
        expected: rows.to_vec(),
    });
    let mutations = json["mutations"].as_object().unwrap().iter();
    Cases {
        vocabulary,
        cases: cases.collect(),
        mutations: mutations
            .map(|(name, moved)| (name.clone(), moved.as_f64().unwrap()))
            .collect(),
    }
}

fn runner(model: &Model, backend: &CpuBackend, disabled: &[&str]) -> Runner {
    let options = RunnerOptions {
        disabled_passes: disabled.iter().map(|name| (*name).to_owned()).collect(),
        ..RunnerOptions::new(300)
    };
    Runner::new(model, backend, options).unwrap()
}

fn check(name: &str, file: &str) {
    let Cases {
        vocabulary, cases, ..
    } = cases(name);
    let mut runner = runner(&tiny(name, file), &CpuBackend::new(2), &[]);
    let lengths: Vec<usize> = cases.iter().map(|case| case.encoder.len()).collect();
    assert_eq!(lengths, [7, 65, 300]);
    for case in cases {
        runner.encode(&case.encoder).unwrap();
        for chunk in [case.decoder.len(), 1, 7, 32, 33] {
            let logits = runner.logits(&case.decoder, chunk).unwrap();
            let found = &logits[logits.len() - case.expected.len()..];
            let found: Vec<f32> = found
                .chunks_exact(vocabulary)
                .flat_map(log_softmax)
                .collect();
            let difference = Difference::between(&found, &case.expected);
            assert!(
                difference.max < F32_TOLERANCE,
                "{name} {file} with {} tokens encoded, in chunks of {chunk}: {difference:?}",
                case.encoder.len()
            );
        }
    }
}

#[test]
fn safetensors() {
    NAMES.iter().for_each(|name| check(name, ""));
}

#[test]
fn gguf() {
    NAMES.iter().for_each(|name| check(name, "model.gguf"));
}

/// The tolerance above is a hundredth of what the smallest mistake would move.
#[test]
fn mistakes_would_show() {
    for name in NAMES {
        let mutations = cases(name).mutations;
        for wanted in [
            "cross-attention removed",
            "the encoder's bias removed",
            "the decoder's bias removed",
            "the encoder's bias forgets the direction",
        ] {
            assert!(mutations.iter().any(|(found, _)| found == wanted));
        }
        for (mutation, moved) in mutations {
            assert!(moved >= 0.1, "{name}: {mutation} moves {moved}");
        }
    }
}

#[test]
fn chunks_threads_instruction_sets_and_passes_change_no_bit() {
    for name in NAMES {
        let model = tiny(name, "");
        let cases = cases(name).cases;
        let bits = |runner: &mut Runner, case: &Case, chunk: usize| -> Vec<u32> {
            runner.encode(&case.encoder).unwrap();
            let logits = runner.logits(&case.decoder, chunk).unwrap();
            logits.iter().map(|l| l.to_bits()).collect()
        };
        let mut plain = runner(&model, &CpuBackend::with_isa(1, Isa::Scalar), &[]);
        let passes: Vec<&str> = mettle_plan::passes::ALL.iter().map(|p| p.name).collect();
        for case in &cases {
            let expected = bits(&mut plain, case, case.decoder.len());
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let backend = CpuBackend::with_isa(threads, isa);
                    for disabled in [&[][..], &passes] {
                        let mut runner = runner(&model, &backend, disabled);
                        for chunk in [case.decoder.len(), 1, 9] {
                            assert!(
                                bits(&mut runner, case, chunk) == expected,
                                "{name} {isa} {threads} threads, chunks of {chunk}, without {disabled:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn steps_that_a_plan_cannot_run_are_refused() {
    let model = tiny("t5", "");
    let plans = model.plans();
    let prepare = PrepareOptions {
        bounds: plans[0].bounds(8, 1),
        kv_pages: 2,
        page_layout: PageLayout::new(&plans[0].kv_groups, 32),
        taps: Vec::new(),
    };
    let backend = CpuBackend::new(1);
    let mut executable = backend.prepare(&plans, &*model.tensors, prepare).unwrap();
    let mut refusal = |plan: usize, rows: &[u32], encoded: u32| {
        let mut step = StepInput::new(2);
        step.plan = plan;
        step.push_sequence([5, 6].map(InputToken::Host).into_iter(), 0);
        step.tables[0].push(0, ContextLen(2), &[BlockId(0)]);
        step.tables[1].push(0, ContextLen(encoded), &[BlockId(1)]);
        step.logit_rows
            .extend(rows.iter().map(|row| TokenRow(*row)));
        let refused = executable.submit(&step).err();
        refused.map(|error| error.to_string()).unwrap_or_default()
    };
    let bad = "the step is not well formed";
    assert_eq!(refusal(2, &[], 2), format!("{bad}: plan 2 of 2"));
    assert_eq!(
        refusal(1, &[1], 2),
        format!("{bad}: plan 1 has no rows to give")
    );
    let expected = format!("{bad}: sequence 0: 2 tokens to encode, room is for 3");
    assert_eq!(refusal(1, &[], 3), expected);
    let expected = format!("{bad}: sequence 0: nothing was encoded");
    assert_eq!(refusal(0, &[1], 0), expected);
    assert_eq!(refusal(1, &[], 2), "");
}
