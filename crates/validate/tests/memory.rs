//! What loading the default model costs in memory. Alone in its file: the peak is the whole process's.
#![cfg(target_os = "linux")]

mod common;

use mettle_cpu::CpuBackend;
use mettle_plan::{Backend, KvElement, PageLayout, PrepareOptions, Sizes, passes};

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with(field)).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

/// For the program itself and its tokenizer: 132 MB were measured for a file of 98 MB.
const PROGRAM: u64 = 16 << 20;

#[test]
fn loading_stays_below_twice_the_file_and_settles_near_it() {
    let path = common::default_model();
    let file = std::fs::metadata(&path).unwrap().len();
    let model = common::open(&path, KvElement::F16);
    model.tokenizer().unwrap();
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let options = PrepareOptions {
        bounds: Sizes::bounds(512, 1),
        kv_pages: page_layout.sequence_pages(model.context_length),
        page_layout,
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(2)
        .prepare(&[plan], &*model.tensors, options)
        .unwrap();
    let (peak, steady) = (status("VmHWM:"), status("VmRSS:"));
    println!(
        "file {file}, peak {peak}, steady {steady}, {:?}",
        executable.memory()
    );
    assert!(peak < 2 * file, "peak {peak} for a file of {file}");
    // No token has been computed, so no page of the KV pool has been touched.
    assert!(
        steady < file + file / 4 + PROGRAM,
        "steady {steady} for a file of {file}"
    );
}
