//! Mixtures of experts: against transformers in f32 from every way to store them, and the same bits whatever the chunks,
//! threads, instruction set and company.

mod common;

use common::{open, reference, tiny};
use mettle_cpu::{CpuBackend, Isa};
use mettle_models::{Model, StoredExperts};
use mettle_plan::{
    Backend, BlockId, ContextLen, InputToken, KvElement, OutputKind, PageLayout, PrepareOptions,
    StepInput, TokenRow, passes,
};
use mettle_validate::{Difference, Runner, RunnerOptions, log_softmax};

/// What f32 rounding in another order may cost: the same model in two frameworks.
const F32_TOLERANCE: f64 = 1e-3;

/// Lengths 7, 65 and 300, the last beyond every window, whole and in chunks that end inside and between pages.
fn check(model: &Model, name: &str, tolerance: f64) {
    let reference = reference(name);
    let backend = CpuBackend::new(2);
    let mut runner = Runner::new(model, &backend, RunnerOptions::new(300)).unwrap();
    for length in [7, 65, 300] {
        let expected = &reference.log_probabilities[..length * reference.vocabulary];
        let whole = runner.logits(&reference.tokens[..length], length).unwrap();
        let rows = whole.chunks_exact(reference.vocabulary);
        let found: Vec<f32> = rows.flat_map(log_softmax).collect();
        let difference = Difference::between(&found, expected);
        println!("{name} {length}: {difference:?}");
        assert!(
            difference.max < tolerance,
            "{name} length {length}: {difference:?}"
        );
        for chunk in [1, 7, 33] {
            let found = runner.logits(&reference.tokens[..length], chunk).unwrap();
            assert!(same(&found, &whole), "{name} in chunks of {chunk}");
        }
    }
}

fn same(a: &[f32], b: &[f32]) -> bool {
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    bits(a) == bits(b)
}

macro_rules! parity {
    ($($test:ident: $name:literal, $file:literal;)*) => {
        $(#[test]
        fn $test() {
            check(&tiny($name, $file), $name, F32_TOLERANCE);
        })*
    };
}

parity! {
    mixtral: "mixtral", "";
    mixtral_gguf: "mixtral", "model.gguf";
    qwen2_moe: "qwen2moe", "";
    qwen2_moe_gguf: "qwen2moe", "model.gguf";
    qwen2_moe_with_a_dense_layer: "qwen2moe-mixed", "";
    qwen3_moe: "qwen3moe", "";
    qwen3_moe_gguf: "qwen3moe", "model.gguf";
    qwen3_moe_with_every_other_layer_dense: "qwen3moe-mixed", "";
    gpt_oss: "gptoss", "";
    gpt_oss_gguf: "gptoss", "model.gguf";
}

/// What rounding activations to 15 bits costs on top, with experts in blocks: 2.5e-3 here.
const QUANTIZED_TOLERANCE: f64 = 5e-3;

#[test]
fn gpt_oss_with_experts_in_blocks_of_4_bits() {
    for file in ["", "model.gguf"] {
        let model = tiny("gptoss-mxfp4", file);
        check(&model, "gptoss-mxfp4", QUANTIZED_TOLERANCE);
    }
}

/// As transformers writes them when it is not asked to write the published names.
#[test]
fn stacked_experts_are_found_by_their_tensors() {
    let model = tiny("qwen3moe-stacked", "");
    let stored = model
        .spec
        .decoder()
        .unwrap()
        .mixture
        .as_ref()
        .unwrap()
        .stored;
    assert_eq!(stored, StoredExperts::Stacked);
    check(&model, "qwen3moe-stacked", F32_TOLERANCE);
}

#[test]
fn threads_instruction_sets_and_passes_change_no_bit() {
    for (name, file) in [
        ("qwen2moe", ""),
        ("gptoss", "model.gguf"),
        ("gptoss-mxfp4", ""),
    ] {
        let model = tiny(name, file);
        let tokens = &reference(name).tokens[..100];
        let logits = |backend: CpuBackend, disabled: &[String], chunk: usize| {
            let mut options = RunnerOptions::new(tokens.len());
            options.disabled_passes = disabled.to_vec();
            let mut runner = Runner::new(&model, &backend, options).unwrap();
            runner.logits(tokens, chunk).unwrap()
        };
        let whole = logits(CpuBackend::new(1), &[], 100);
        for threads in [2, 3] {
            let found = logits(CpuBackend::new(threads), &[], 40);
            assert!(same(&found, &whole), "{name}, {threads} threads");
        }
        for isa in Isa::available() {
            let found = logits(CpuBackend::with_isa(2, isa), &[], 30);
            assert!(same(&found, &whole), "{name}, {isa}");
        }
        for pass in passes::ALL {
            let found = logits(CpuBackend::new(2), &[pass.name.to_owned()], 100);
            assert!(same(&found, &whole), "{name} without {}", pass.name);
        }
    }
}

/// Prompts of several lengths in one step, then one token of each in one step: every row as if it were alone.
#[test]
fn company_changes_no_bit() {
    for name in ["mixtral", "qwen2moe", "qwen3moe", "gptoss", "gptoss-mxfp4"] {
        let folder = common::fixtures().join("models").join(name);
        let model = open(&folder, KvElement::F32);
        let tokens = reference(name).tokens;
        let prompts: Vec<&[u32]> = [(0, 50), (40, 3), (90, 17), (120, 33), (7, 1), (160, 64)]
            .map(|(start, length): (usize, usize)| &tokens[start..start + length])
            .to_vec();
        let together = step_by_step(&model, &prompts);
        for (index, prompt) in prompts.iter().enumerate() {
            let alone = step_by_step(&model, &[prompt]);
            assert!(
                same(&together[index], &alone[0]),
                "{name}, prompt {index} of {} tokens",
                prompt.len()
            );
        }
    }
}

/// For each prompt the logits after its tokens but the last, and after the last, computed in a step of its own.
fn step_by_step(model: &Model, prompts: &[&[u32]]) -> Vec<Vec<f32>> {
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let pages = page_layout.sequence_pages(64);
    let groups = plan.kv_groups.len();
    let options = PrepareOptions {
        bounds: plan.bounds(256, prompts.len()),
        kv_pages: pages * prompts.len(),
        page_layout,
        taps: Vec::new(),
    };
    let mut executable = CpuBackend::new(2)
        .prepare(&[plan], &*model.tensors, options)
        .unwrap();
    let mut logits = vec![Vec::new(); prompts.len()];
    for is_last in [false, true] {
        let mut step = StepInput::new(groups);
        step.clear();
        let mut of_rows = Vec::new();
        for (index, prompt) in prompts.iter().enumerate() {
            let last = prompt.len() - 1;
            let (first, mine) = match is_last {
                true => (last, &prompt[last..]),
                false => (0, &prompt[..last]),
            };
            if mine.is_empty() {
                continue;
            }
            let start = step.tokens.len();
            let ids = mine.iter().map(|t| InputToken::Host(*t));
            step.push_sequence(ids, first as u32);
            let own: Vec<BlockId> = (0..pages)
                .map(|page| BlockId((index * pages + page) as u32))
                .collect();
            for table in &mut step.tables {
                table.push(0, ContextLen((first + mine.len()) as u32), &own);
            }
            for row in start..start + mine.len() {
                step.logit_rows.push(TokenRow(row as u32));
                of_rows.push(index);
            }
        }
        if of_rows.is_empty() {
            continue;
        }
        step.output = OutputKind::Logits;
        let ticket = executable.submit(&step).unwrap();
        let output = executable.wait(ticket).unwrap();
        for (row, index) in of_rows.into_iter().enumerate() {
            logits[index].extend_from_slice(output.logits_row(row));
        }
    }
    logits
}

#[test]
fn every_kernel_of_a_mixture_runs_and_no_other() {
    let model = tiny("qwen2moe", "model.gguf");
    let mut runner = Runner::new(&model, &CpuBackend::new(2), RunnerOptions::new(64)).unwrap();
    runner.step(&[1, 2, 3], 0).unwrap();
    let ran = runner.executable().dispatches();
    let layers = model.spec.layers() as u64;
    for kernel in ["moe_route", "moe_experts", "sigmoid_gate", "silu_mul"] {
        assert_eq!(ran[kernel], layers, "{kernel}");
    }
}
