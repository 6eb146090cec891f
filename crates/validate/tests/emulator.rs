//! Tiny models of every architecture through the GPU's kernels, on the emulated device, against transformers in f32.
#![cfg(feature = "emulator")]

mod common;

use common::{fixtures, open, reference};
use mettle_gpu::emulator::EmulatorGpu;
use mettle_gpu::{GpuBackend, Precision};
use mettle_kernels::select::DeviceProfile;
use mettle_plan::KvElement;
use mettle_validate::{Difference, Runner, RunnerOptions, log_softmax};

fn backend(seed: u32, profile: DeviceProfile) -> GpuBackend<EmulatorGpu> {
    let open = move || Ok(EmulatorGpu::open(seed, profile));
    GpuBackend::new(open, Precision::default()).unwrap()
}

/// The mean difference is at most twice what f16 costs transformers itself.
fn check(name: &str, file: &str, seed: u32, profile: DeviceProfile) {
    let path = fixtures().join("models").join(name).join(file);
    let model = open(&path, KvElement::F16);
    let reference = reference(name);
    let allowed = 2.0 * reference.f16_mean_difference.expect("recorded by the fixture's script");
    let mut runner =
        Runner::new(&model, &backend(seed, profile), RunnerOptions::new(300)).unwrap();
    for (length, chunks) in [(7, &[7, 1][..]), (65, &[65, 7]), (300, &[300, 33])] {
        let expected = &reference.log_probabilities[..length * reference.vocabulary];
        for &chunk in chunks {
            let logits = runner.logits(&reference.tokens[..length], chunk).unwrap();
            let found: Vec<f32> = logits
                .chunks_exact(reference.vocabulary)
                .flat_map(log_softmax)
                .collect();
            let difference = Difference::between(&found, expected);
            println!("{name}/{file} length {length} in chunks of {chunk}: {difference:?}, allowed {allowed:.5}");
            assert!(
                difference.mean <= allowed,
                "{name}/{file} length {length} in chunks of {chunk}: {difference:?}, allowed {allowed}"
            );
        }
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
