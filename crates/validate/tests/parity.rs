//! Tiny models of every architecture against transformers in f32, from both file formats.

mod common;

use common::widened::Widened;
use common::{reference, tiny};
use mettle_cpu::CpuBackend;
use mettle_models::Model;
use mettle_validate::{Difference, Reference, Runner, RunnerOptions, log_softmax};
use std::sync::Arc;

/// What f32 rounding in another order may cost: the same model in two frameworks.
const F32_TOLERANCE: f64 = 1e-3;

fn log_probabilities(runner: &mut Runner, r: &Reference, length: usize, chunk: usize) -> Vec<f32> {
    let logits = runner.logits(&r.tokens[..length], chunk).unwrap();
    logits
        .chunks_exact(r.vocabulary)
        .flat_map(log_softmax)
        .collect()
}

/// Compares at lengths 7, 65 and 300, unchunked and chunked.
fn check(name: &str, file: &str, tolerance: f64) {
    check_model(name, &tiny(name, file), tolerance);
}

fn check_model(name: &str, model: &Model, tolerance: f64) {
    let reference = reference(name);
    let backend = CpuBackend::new(2);
    let mut runner = Runner::new(model, &backend, RunnerOptions::new(300)).unwrap();
    for length in [7, 65, 300] {
        let expected = &reference.log_probabilities[..length * reference.vocabulary];
        for chunk in [length, 1, 7, 32, 33] {
            let found = log_probabilities(&mut runner, &reference, length, chunk);
            let difference = Difference::between(&found, expected);
            assert!(
                difference.max < tolerance,
                "{name} length {length} in chunks of {chunk}: {difference:?}"
            );
            check_top_tokens(&found, expected, reference.vocabulary, tolerance);
        }
    }
}

/// The most likely token is the same wherever the reference's lead exceeds twice the tolerance.
fn check_top_tokens(found: &[f32], expected: &[f32], vocabulary: usize, tolerance: f64) {
    let rows = found
        .chunks_exact(vocabulary)
        .zip(expected.chunks_exact(vocabulary));
    for (row, (found, expected)) in rows.enumerate() {
        let mut order: Vec<usize> = (0..vocabulary).collect();
        order.sort_by(|a, b| expected[*b].total_cmp(&expected[*a]));
        if (expected[order[0]] - expected[order[1]]) as f64 > 2.0 * tolerance {
            let top = (0..vocabulary)
                .max_by(|a, b| found[*a].total_cmp(&found[*b]))
                .unwrap();
            assert_eq!(top, order[0], "row {row}");
        }
    }
}

macro_rules! parity {
    ($($test:ident: $name:literal;)*) => {
        $(mod $test {
            #[test]
            fn safetensors() {
                super::check($name, "", super::F32_TOLERANCE);
            }
            #[test]
            fn gguf() {
                super::check($name, "model.gguf", super::F32_TOLERANCE);
            }
        })*
    };
}

parity! {
    llama: "llama";
    llama31: "llama31";
    smollm2: "smollm2";
    qwen2: "qwen2";
    qwen3: "qwen3";
    mistral: "mistral";
    mistral_window: "mistral-window";
    gemma2: "gemma2";
    gemma3: "gemma3";
    gemma4: "gemma4";
    phi3: "phi3";
    phi4_mini: "phi4-mini";
}

/// The text of a model with images, whose attention scale no GGUF file can express.
#[test]
fn the_text_part_of_gemma3() {
    check("gemma3-images", "", F32_TOLERANCE);
}

#[test]
fn sharded_safetensors() {
    check("llama-sharded", "", F32_TOLERANCE);
}

#[test]
fn half_precision_weights_compute_in_f32() {
    check("llama-f16", "", F32_TOLERANCE);
    check("llama-bf16", "", F32_TOLERANCE);
}

#[test]
fn quantized_weights_lose_little() {
    // Measured 7.6e-3 at the most and 5.7e-4 on average, from 15-bit activations. With 8-bit ones simulated in
    // transformers the same model is off by 0.85 at the most and 0.073 on average.
    check("llama31-q8_0", "model.gguf", 1e-2);
}

/// In floats nothing is lost; in their own types the integer kernels round activations to 15 bits.
fn check_quantized(name: &str, tolerance: f64) {
    let mut model = tiny(name, "");
    check_model(name, &model, tolerance);
    model.tensors = Arc::new(Widened::new(&*model.tensors));
    check_model(name, &model, F32_TOLERANCE);
}

#[test]
fn mlx() {
    // Measured 1.4e-2 at the most and 7.6e-4 on average, as its embedding is the head and quantized too.
    check_quantized("llama-mlx4", 2e-2);
    // 1.6e-3 and 1.8e-4.
    check_quantized("llama-mlx8", 3e-3);
}

#[test]
fn awq() {
    // Measured 1.6e-3 at the most and 1.9e-4 on average.
    check_quantized("llama-awq", 3e-3);
}

#[test]
fn gptq() {
    // Measured 4.9e-3 at the most and 5.3e-4 on average, with groups in the order of activations; 2.0e-3 and 1.9e-4.
    check_quantized("qwen2-gptq", 1e-2);
    check_quantized("llama-gptq", 3e-3);
}

#[test]
fn fp8() {
    // Computed in floats: 5e-5 at the most.
    check_quantized("llama-fp8", F32_TOLERANCE);
    check_quantized("llama-fp8-rows", F32_TOLERANCE);
}

/// The parts hold the bytes of the whole file, so nothing may differ.
#[test]
fn split_gguf() {
    let whole = tiny("llama31-q8_0", "model.gguf");
    let tokens = reference("llama31-q8_0").tokens;
    let logits = |model: &Model| {
        let backend = CpuBackend::new(2);
        let mut runner = Runner::new(model, &backend, RunnerOptions::new(300)).unwrap();
        runner.logits(&tokens, 300).unwrap()
    };
    for path in ["", "tiny-00002-of-00003.gguf"] {
        let parts = tiny("llama31-split", path);
        assert_eq!(
            parts.name,
            if path.is_empty() {
                "llama31-split"
            } else {
                "tiny"
            }
        );
        assert!(logits(&parts) == logits(&whole), "opened from {path:?}");
    }
}
