//! Tiny models of every architecture through the GPU's kernels, on the emulated device, against transformers in f32.
#![cfg(feature = "emulator")]

mod common;

use common::{fixtures, open};
use mettle_gpu::emulator::EmulatorGpu;
use mettle_gpu::{GpuBackend, Precision};
use mettle_kernels::select::DeviceProfile;
use mettle_plan::{
    Backend, BlockId, ContextLen, Executable, InputToken, KvElement, PageLayout, PrepareOptions,
    Sizes, StepInput, TokenRow, passes,
};
use mettle_validate::{Runner, RunnerOptions, check_fixture};

fn backend(seed: u32, profile: DeviceProfile) -> GpuBackend<EmulatorGpu> {
    let open = move || Ok(EmulatorGpu::open(seed, profile));
    GpuBackend::new(open, Precision::default()).unwrap()
}

fn check(name: &str, file: &str, seed: u32, profile: DeviceProfile) {
    let folder = fixtures().join("models").join(name);
    for result in check_fixture(&folder, file, &backend(seed, profile)).unwrap() {
        println!("{result:?}");
        assert!(result.is_within(), "{result:?}");
    }
}

macro_rules! parity {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), "", 0, DeviceProfile::apple(10));
            check(stringify!($name), "model.gguf", 7, DeviceProfile::nvidia(132));
        })*
    };
}

parity! { llama llama31 smollm2 qwen2 qwen3 mistral }

#[test]
fn quantized_and_half_weights() {
    check("llama31-q8_0", "model.gguf", 3, DeviceProfile::apple(10));
    check("llama-bf16", "", 4, DeviceProfile::apple(10));
    check("llama-f16", "", 0, DeviceProfile::nvidia(132));
    // Dense on a device, its columns stored in an order of their own.
    check("qwen2-gptq", "", 5, DeviceProfile::apple(10));
}

/// Names and counts of what ran in one prefill step of 20 tokens and two decode steps.
#[test]
fn every_kernel_of_the_plan_runs_and_no_other() {
    let path = fixtures().join("models/qwen3/model.gguf");
    let model = open(&path, KvElement::F16);
    let layers = model.spec.layers() as u64;
    let backend = backend(0, DeviceProfile::apple(10));
    let mut runner = Runner::new(&model, &backend, RunnerOptions::new(64)).unwrap();
    assert!(
        runner.executable().dispatches().is_empty(),
        "compiling is not running"
    );
    let prompt: Vec<u32> = (1..=20).collect();
    runner.step(&prompt, 0).unwrap();
    runner.step(&[3], 20).unwrap();
    runner.step(&[4], 21).unwrap();
    let found: Vec<(&str, u64)> = runner.executable().dispatches().into_iter().collect();
    let expected = [
        ("attention_decode_f16_d64", 2 * layers),
        ("attention_prefill_f16_d64", layers),
        ("embed_f16", 3),
        // Of attention, and of what it is added to.
        ("gather_f16", 3 * 2),
        // Queries, and keys.
        ("head_norm_f16", 3 * 2 * layers),
        // Fused q, k and v; the output projection; fused gate and up; down.
        ("linear_f16_f16_32x32x32", 4 * layers),
        ("linear_f16_f32_32x32x32", 1),
        ("linear_small_f16_f16_r1_c4", 2 * 4 * layers),
        ("linear_small_f16_f32_r1_c4", 2),
        ("rms_norm_f16", 3 * (2 * layers + 1)),
        ("rope_kv_write_f16", 3 * layers),
        ("silu_mul_f16", 3 * layers),
    ];
    assert_eq!(found, expected);
}

/// A step of a sequence: its tokens and where they start.
struct Part<'a> {
    tokens: &'a [u32],
    first: u32,
    pages: [u32; 3],
}

fn logits_of(executable: &mut dyn Executable, parts: &[Part]) -> Vec<Vec<f32>> {
    let mut step = StepInput::new(1);
    let mut rows = 0;
    for part in parts {
        let tokens = part.tokens.iter().map(|t| InputToken::Host(*t));
        step.push_sequence(tokens, part.first);
        let end = part.first + part.tokens.len() as u32;
        step.tables[0].push(0, ContextLen(end), &part.pages.map(BlockId));
        rows += part.tokens.len() as u32;
        step.logit_rows.push(TokenRow(rows - 1));
    }
    let ticket = executable.submit(&step).unwrap();
    let output = executable.wait(ticket).unwrap();
    (0..parts.len())
        .map(|row| output.logits_row(row).to_vec())
        .collect()
}

/// Decoding, a short continuation and a prompt in one step give the bits that each gives alone.
#[test]
fn company_changes_no_bit_when_asked_so() {
    let model = open(
        &fixtures().join("models/llama31/model.gguf"),
        KvElement::F16,
    );
    let precision = Precision {
        batch_invariant: true,
        ..Precision::default()
    };
    let open_gpu = || Ok(EmulatorGpu::open(5, DeviceProfile::nvidia(4)));
    let backend = GpuBackend::new(open_gpu, precision).unwrap();
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let options = PrepareOptions {
        bounds: Sizes::bounds(128, 4),
        kv_pages: 16,
        page_layout,
        taps: Vec::new(),
    };
    let mut executable = backend.prepare(&[plan], &*model.tensors, options).unwrap();
    let tokens: Vec<u32> = (0..80).map(|i| (i * 37 + 11) % 250).collect();
    let pages = [[7, 0, 3], [1, 9, 2], [4, 5, 6]];
    // Two sequences have a context already.
    for (sequence, length) in [(0, 40), (1, 33)] {
        let part = Part {
            tokens: &tokens[..length],
            first: 0,
            pages: pages[sequence],
        };
        logits_of(&mut *executable, &[part]);
    }
    let parts = || {
        [
            Part {
                tokens: &tokens[40..41],
                first: 40,
                pages: pages[0],
            },
            Part {
                tokens: &tokens[33..38],
                first: 33,
                pages: pages[1],
            },
            Part {
                tokens: &tokens[..50],
                first: 0,
                pages: pages[2],
            },
        ]
    };
    let alone: Vec<Vec<f32>> = parts()
        .into_iter()
        .flat_map(|part| logits_of(&mut *executable, &[part]))
        .collect();
    let together = logits_of(&mut *executable, &parts());
    let bits =
        |rows: &[Vec<f32>]| -> Vec<u32> { rows.iter().flatten().map(|v| v.to_bits()).collect() };
    assert_eq!(bits(&alone), bits(&together));
}
