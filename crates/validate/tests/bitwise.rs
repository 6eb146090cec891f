//! The same prompt gives the same logits, to the last bit, however it is computed.

mod common;

use common::{default_model, json, open, reference, tiny};
use mettle_cpu::{CpuBackend, Isa};
use mettle_models::Model;
use mettle_plan::{KvElement, passes};
use mettle_validate::{Runner, RunnerOptions};

fn bits(
    model: &Model,
    backend: &CpuBackend,
    options: RunnerOptions,
    tokens: &[u32],
    chunk: usize,
) -> Vec<u32> {
    let mut runner = Runner::new(model, backend, options).unwrap();
    let logits = runner.logits(tokens, chunk).unwrap();
    assert!(logits.iter().all(|l| l.is_finite()));
    logits.iter().map(|l| l.to_bits()).collect()
}

/// Whole and in chunks, with one to three threads, on every instruction set, fused and not.
fn check(model: &Model, tokens: &[u32], chunks: &[usize], threads: &[usize]) {
    let options = || RunnerOptions::new(tokens.len());
    let whole = bits(model, &CpuBackend::new(1), options(), tokens, tokens.len());
    for &chunk in chunks {
        for &threads in threads {
            let found = bits(model, &CpuBackend::new(threads), options(), tokens, chunk);
            assert!(found == whole, "chunks of {chunk}, {threads} threads");
        }
    }
    let mut runner = Runner::new(model, &CpuBackend::new(2), options()).unwrap();
    runner.logits(tokens, tokens.len()).unwrap();
    // Groups with smaller entries have longer pages; prefixes are whole pages of all groups.
    let common = runner.common_tokens();
    for prefix in [common, 2 * common] {
        runner.share_prefix(prefix);
        let found = runner.step(&tokens[prefix..], prefix).unwrap();
        let found: Vec<u32> = found.iter().map(|l| l.to_bits()).collect();
        let width = whole.len() / tokens.len();
        assert!(
            found == whole[prefix * width..],
            "after a prefix hit of {prefix} tokens"
        );
    }
    for pass in passes::ALL {
        let mut options = options();
        options.disabled_passes.push(pass.name.to_owned());
        let found = bits(model, &CpuBackend::new(2), options, tokens, tokens.len());
        assert!(found == whole, "without {}", pass.name);
    }
}

#[test]
fn tiny_models_in_every_way() {
    for name in [
        "llama31",
        "qwen2",
        "qwen3",
        "gemma2",
        "gemma3",
        "gemma4",
        "phi3",
        "mistral-window",
    ] {
        let model = tiny(name, "");
        let tokens = reference(name).tokens;
        check(&model, &tokens, &[1, 7, 32, 33, 300], &[1, 2, 3]);
        for isa in Isa::available() {
            let options = RunnerOptions::new(tokens.len());
            let whole = bits(&model, &CpuBackend::new(2), options.clone(), &tokens, 300);
            let found = bits(&model, &CpuBackend::with_isa(2, isa), options, &tokens, 64);
            assert!(found == whole, "{name} {isa}");
        }
    }
}

#[test]
fn quantized_weights_and_half_caches_in_every_way() {
    let path = common::fixtures().join("models/llama31-q8_0/model.gguf");
    let model = open(&path, KvElement::F16);
    let tokens = reference("llama31-q8_0").tokens;
    check(&model, &tokens, &[1, 7, 32, 33, 300], &[1, 2, 3]);
}

#[test]
fn quantized_safetensors_on_every_instruction_set() {
    for name in ["llama-mlx4", "llama-awq", "qwen2-gptq", "llama-fp8"] {
        let model = tiny(name, "");
        let tokens = reference(name).tokens;
        check(&model, &tokens, &[1, 33], &[1, 2]);
        for isa in Isa::available() {
            let options = RunnerOptions::new(tokens.len());
            let whole = bits(&model, &CpuBackend::new(2), options.clone(), &tokens, 300);
            let found = bits(&model, &CpuBackend::with_isa(2, isa), options, &tokens, 64);
            assert!(found == whole, "{name} {isa}");
        }
    }
}

#[test]
fn the_default_model_in_every_way() {
    let model = open(&default_model(), KvElement::F16);
    let texts = json(&common::fixtures().join("smollm2/reference.json"));
    let tokens = common::ids(&texts["texts"]["prose"]["tokens"]);
    check(&model, &tokens[..80], &[1, 7, 32, 33], &[1, 2]);
}
