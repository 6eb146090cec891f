//! The decode step allocates nothing, whatever is sampled, scored or constrained, and whether or not its tokens are read.

use mettle_engine::mock::{MockExecutable, MockStep};
use mettle_engine::{
    ConstraintError, Engine, EngineOptions, MAX_LOGPROBS, Request, RequestStream, SamplingParams,
    TokenConstraint, TokenMask,
};
use mettle_plan::{GroupPages, PageLayout, Retention, Sizes};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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

/// Allocations of the worker thread between decode steps 100 and 1100 of `batch` requests, as the mock sees them.
fn allocations_in_1000_steps(like: &Request, batch: usize, are_read: bool) -> u64 {
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
    let all_submitted = Arc::new(AtomicBool::new(false));
    let may_start = all_submitted.clone();
    let pages = 100 * batch;
    let mock = MockExecutable::new(100, layout, pages, Sizes::bounds(512, batch));
    let mock = mock.with_hook(move |step| {
        // Requests that came after step 100 would be counted.
        while !may_start.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        match step {
            100 => seen[0].store(COUNT.get(), Ordering::Relaxed),
            1100 => seen[1].store(COUNT.get(), Ordering::Relaxed),
            _ => {}
        }
        MockStep::Run
    });
    let options = EngineOptions {
        max_sequences: batch,
        ..EngineOptions::new(100, 2000, pages)
    };
    let engine = Engine::start(Box::new(mock), options).unwrap();
    let streams: Vec<_> = (0..batch as u32)
        .map(|number| {
            let request = Request {
                prompt: vec![number; 20],
                ..like.clone()
            };
            engine.submit(request).unwrap()
        })
        .collect();
    all_submitted.store(true, Ordering::Relaxed);
    while !are_read && engine.stats().live > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let read = |mut stream: RequestStream| while stream.recv().is_some() {};
    std::thread::scope(|scope| {
        streams.into_iter().for_each(|stream| {
            scope.spawn(move || read(stream));
        });
    });
    assert_eq!(engine.stats().preemptions, 0);
    counted[1].load(Ordering::Relaxed) - counted[0].load(Ordering::Relaxed)
}

#[test]
fn a_decode_step_does_not_allocate() {
    let everything = SamplingParams {
        temperature: 1.0,
        top_k: 90,
        top_p: 0.9,
        min_p: 0.01,
        typical_p: 0.95,
        repetition_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.1,
        logit_bias: vec![(1, 1.0)],
        bad_words: vec![vec![1, 2], vec![3]],
        allowed_token_ids: Some((0..95).collect()),
        seed: Some(1),
    };
    let plain = Request::new(vec![0], 1200);
    let requests = [
        plain.clone(),
        Request {
            sampling: everything.clone(),
            ..plain.clone()
        },
        Request {
            logprobs: Some(MAX_LOGPROBS),
            sampling: everything,
            ..plain.clone()
        },
        Request {
            logprobs: Some(0),
            constraint: Some(Box::new(EvenAfterOdd { last: 0 })),
            ..plain
        },
    ];
    for (number, request) in requests.iter().enumerate() {
        for batch in [1, 24] {
            for are_read in [false, true] {
                let count = allocations_in_1000_steps(request, batch, are_read);
                assert_eq!(
                    count, 0,
                    "request {number}, batch {batch}, read: {are_read}"
                );
            }
        }
    }
}

/// Takes turns, so that a mask that came late or not at all would be seen.
#[derive(Debug)]
struct EvenAfterOdd {
    last: u32,
}

impl TokenConstraint for EvenAfterOdd {
    fn mask(&mut self, out: &mut TokenMask) -> Result<(), ConstraintError> {
        let first = (self.last + 1) % 2;
        (first..100).step_by(2).for_each(|id| out.allow(id));
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        match token % 2 != self.last % 2 {
            true => self.last = token,
            false => return Err(ConstraintError(format!("{token} after {}", self.last))),
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn fork(&self) -> Box<dyn TokenConstraint> {
        Box::new(EvenAfterOdd { last: self.last })
    }
}
