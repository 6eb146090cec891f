//! Which kernels ran, and how often: a test that passed on another path than the one meant would show here.

mod common;

use mettle_cpu::{CpuBackend, Isa};
use mettle_plan::{KvElement, Op};
use mettle_validate::{Runner, RunnerOptions};

#[test]
fn every_kernel_of_the_plan_runs_and_no_other() {
    let path = common::fixtures().join("models/llama31-q8_0/model.gguf");
    let model = common::open(&path, KvElement::F16);
    let layers = model.spec.layers() as u64;
    let linear = |name: &str| format!("linear/{name}/{}", Isa::detect().name());
    let mut runner = Runner::new(&model, &CpuBackend::new(2), RunnerOptions::new(64)).unwrap();
    assert!(runner.executable().dispatches().is_empty());
    let steps = 3;
    for step in 0..steps {
        runner.step(&[1, 2, 3], 3 * step).unwrap();
    }
    let steps = steps as u64;
    let expected = [
        ("attention".to_owned(), layers * steps),
        ("embed".to_owned(), steps),
        // Of the last attention's output, and of what it is added to.
        ("gather".to_owned(), 2 * steps),
        // Rows of 112 are no whole blocks, so the converter left the down projection in f16.
        (linear("f16"), layers * steps),
        // Three of q, k, v; the output projection; gate and up; and the head.
        (linear("q8_0"), (layers * 6 + 1) * steps),
        ("rms_norm".to_owned(), (layers * 2 + 1) * steps),
        ("rope_kv_write".to_owned(), layers * steps),
        ("silu_mul".to_owned(), layers * steps),
    ];
    let found: Vec<(String, u64)> = runner
        .executable()
        .dispatches()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    let model = common::tiny("llama", "");
    let mut plan = model.plan();
    for node in &mut plan.nodes {
        if let Op::Attention(attention) = &mut node.op {
            attention.values_in_keys = true;
        }
    }
    let backend = CpuBackend::new(1);
    let options = mettle_plan::PrepareOptions {
        bounds: plan.bounds(8, 1),
        kv_pages: 1,
        page_layout: mettle_plan::PageLayout::new(&plan.kv_groups, 32),
        taps: Vec::new(),
    };
    let error = mettle_plan::Backend::prepare(&backend, &[plan], &*model.tensors, options)
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "the cpu backend has no attention with values of another width than keys"
    );
}
