//! The decode step allocates nothing but the event channel's blocks, whatever is sampled.

use mettle_engine::mock::{MockExecutable, MockStep};
use mettle_engine::{Engine, EngineOptions, Event, Request, SamplingParams};
use mettle_plan::{GroupPages, PageLayout, Retention, Sizes};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a plain thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the worker thread between decode steps 100 and 1100 of one request whose events nobody takes yet, as
/// the mock sees them.
fn allocations_in_1000_steps(sampling: SamplingParams) -> u64 {
    let group = |retention, tokens_per_page| GroupPages {
        retention,
        tokens_per_page,
        pages_per_state: 0,
    };
    let groups = vec![
        group(Retention::Full, 16),
        group(Retention::Window(100), 32),
    ];
    let layout = PageLayout {
        page_bytes: 1,
        groups,
    };
    let counted = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let seen = counted.clone();
    let mock = MockExecutable::new(1000, layout, 200, Sizes::bounds(64, 1));
    let mock = mock.with_hook(move |step| {
        match step {
            100 => seen[0].store(COUNT.get(), Ordering::Relaxed),
            1100 => seen[1].store(COUNT.get(), Ordering::Relaxed),
            _ => {}
        }
        MockStep::Run
    });
    let options = EngineOptions::new(1000, 2000, 200);
    let engine = Engine::start(Box::new(mock), options).unwrap();
    let request = Request {
        sampling,
        ..Request::new(vec![1; 20], 1200)
    };
    let mut stream = engine.submit(request).unwrap();
    while !matches!(stream.recv(), Some(Event::Finished(_))) {}
    counted[1].load(Ordering::Relaxed) - counted[0].load(Ordering::Relaxed)
}

#[test]
fn a_decode_step_does_not_allocate() {
    let everything = SamplingParams {
        temperature: 1.0,
        top_k: 100,
        top_p: 0.9,
        min_p: 0.01,
        repetition_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.1,
        logit_bias: vec![(1, 1.0)],
        seed: Some(1),
    };
    for sampling in [SamplingParams::default(), everything] {
        let count = allocations_in_1000_steps(sampling);
        println!("{count} allocations in 1000 steps");
        // Tokio's channel takes a block for every 32 events unless the reader has given one back, and the prefix index
        // keeps the tokens of each newly filled page (1000/16 + 1000/32), reusing those of overwritten ones.
        assert!(count <= 1000 / 32 + 1000 / 16 + 1000 / 32 + 3, "{count}");
    }
}
