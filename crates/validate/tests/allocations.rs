//! The decode step allocates nothing.

mod common;

use mettle_cpu::CpuBackend;
use mettle_models::Model;
use mettle_plan::{
    Backend, BlockId, ContextLen, InputToken, PageLayout, PrepareOptions, Retention, StepInput,
    TokenRow, passes,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test: others beside it would be counted.
#[test]
fn a_hundred_decode_steps_allocate_nothing() {
    for path in [
        "llama31-q8_0/model.gguf",
        "qwen2moe",
        "gptoss-mxfp4",
        "t5-gated",
    ] {
        let model = common::fixtures().join("models").join(path);
        check(&common::open(&model, mettle_plan::KvElement::F16), path);
    }
}

fn check(model: &Model, name: &str) {
    let mut plans = model.plans();
    for plan in &mut plans {
        passes::apply(plan, &[]).unwrap();
    }
    let page_layout = PageLayout::new(&plans[0].kv_groups, 32);
    let kv_pages = page_layout.sequence_pages(128);
    let retentions: Vec<Retention> = page_layout.groups.iter().map(|g| g.retention).collect();
    let options = PrepareOptions {
        bounds: plans[0].bounds(64, 4),
        kv_pages,
        page_layout,
        taps: Vec::new(),
    };
    let mut executable = CpuBackend::new(2)
        .prepare(&plans, &*model.tensors, options)
        .unwrap();
    let pages: Vec<BlockId> = (0..kv_pages as u32).map(BlockId).collect();
    let mut step = StepInput::new(retentions.len());
    let mut before = 0;
    for position in 0..110 {
        if position == 10 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        step.clear();
        step.push_sequence([InputToken::Host(position)].into_iter(), position);
        for (table, retention) in step.tables.iter_mut().zip(&retentions) {
            // What an encoder would have left there does not matter.
            let len = match retention {
                Retention::Encoder => 40,
                _ => position + 1,
            };
            table.push(0, ContextLen(len), &pages);
        }
        step.logit_rows.push(TokenRow(0));
        let ticket = executable.submit(&step).unwrap();
        executable.wait(ticket).unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{name}");
}
