//! Owns how requests and engines end: drops, aborts, refusals, failures, panics, shutdowns.

use crate::setup::*;
use mettle_engine::mock::MockStep;
use mettle_engine::{Engine, EngineError, EngineOptions, Event, FinishReason, Request};
use mettle_plan::Retention;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[test]
fn dropping_or_aborting_a_stream_ends_its_request() {
    for drop_it in [true, false] {
        let engine = Setup::new(plain()).start_with(|_| {
            std::thread::sleep(Duration::from_millis(2));
            MockStep::Run
        });
        let mut stream = engine.submit(Request::new(prompt(10, 6), 300)).unwrap();
        assert!(matches!(stream.recv(), Some(Event::Token { .. })));
        if drop_it {
            drop(stream);
        } else {
            stream.abort();
            let last = std::iter::from_fn(|| stream.recv()).last();
            let Some(Event::Finished(end)) = last else {
                panic!("{last:?}");
            };
            assert_eq!(end.reason, FinishReason::Abort);
        }
        wait_until("the request ends", || engine.stats().running == 0);
        wait_until("its blocks are free", || engine.stats().blocks_used == 0);
        assert!(engine.stats().generated_tokens < 300);
        assert_eq!(ask(&engine, Request::new(prompt(10, 6), 3)).tokens.len(), 3);
    }
}

#[test]
fn a_full_queue_refuses_at_once_and_takes_requests_again_later() {
    let (gate, opened) = mpsc::channel::<()>();
    let mut setup = Setup::new(plain());
    setup.options.max_queue = 2;
    let engine = setup.start_with(move |_| {
        let _ = opened.recv();
        MockStep::Run
    });
    let request = || Request::new(prompt(10, 7), 4);
    let mut streams: Vec<_> = (0..3).map(|_| engine.submit(request()).unwrap()).collect();
    let refused = engine.submit(request()).unwrap_err();
    assert_eq!(refused, EngineError::QueueFull { live: 3, limit: 3 });
    assert!(refused.is_temporary() && !refused.is_callers_fault());
    // A waiting request that is dropped makes room.
    drop(streams.pop());
    gate.send(()).unwrap();
    wait_until("the dropped request is gone", || {
        engine.stats().waiting == 1
    });
    streams.push(engine.submit(request()).unwrap());
    drop(gate);
    for stream in streams {
        assert_eq!(read(stream).tokens, greedy(&plain(), &prompt(10, 7), 4));
    }
    ask(&engine, request());
}

#[test]
fn a_request_larger_than_the_pool_is_refused_with_numbers() {
    let engine = Setup::new(plain()).pages(4).start();
    let error = engine.submit(Request::new(prompt(60, 1), 10)).unwrap_err();
    assert!(error.is_callers_fault());
    assert_eq!(
        error.to_string(),
        "prompt has 60 tokens and asks for 10 more, which takes up to 5 pages of the KV cache; it has 4"
    );
    let fits = ask(&engine, Request::new(prompt(60, 1), 5));
    assert_eq!(fits.tokens, greedy(&plain(), &prompt(60, 1), 5));
    let error = engine.submit(Request::new(prompt(399, 1), 2)).unwrap_err();
    assert!(
        error.to_string().contains("the context holds 400"),
        "{error}"
    );
}

#[test]
fn a_tiny_pool_runs_many_requests_one_after_another() {
    for layout in layouts() {
        let engine = Setup::new(layout.clone())
            .pages(10)
            .sequences(4)
            .chunk(9)
            .start();
        let streams: Vec<_> = (0..12)
            .map(|i| {
                (
                    i,
                    engine.submit(Request::new(prompt(40, i % 5), 20)).unwrap(),
                )
            })
            .collect();
        for (index, stream) in streams {
            assert_eq!(
                read(stream).tokens,
                greedy(&layout, &prompt(40, index % 5), 20)
            );
        }
        engine.shutdown();
        assert_eq!(engine.stats().blocks_used, 0);
    }
}

#[test]
fn logits_that_are_no_numbers_end_their_request_alone() {
    let engine = Setup::new(plain()).start_with(|step| match step {
        3 => MockStep::NotANumber,
        _ => MockStep::Run,
    });
    let prompt = prompt(10, 8);
    let broken = ask(&engine, Request::new(prompt.clone(), 10));
    assert_eq!(broken.tokens, greedy(&plain(), &prompt, 3));
    let FinishReason::Error(message) = broken.end.reason else {
        panic!("{:?}", broken.end.reason);
    };
    assert!(message.contains("not a number"), "{message}");
    let fine = ask(&engine, Request::new(prompt.clone(), 10));
    assert_eq!(fine.tokens, greedy(&plain(), &prompt, 10));
    assert!(engine.is_alive());
    assert_eq!(engine.stats().running, 0);
    assert_eq!(engine.stats().ended.error, 1);
}

#[test]
fn a_device_that_fails_ends_all_requests_and_the_engine() {
    // In a prompt's step, in a decode step, in a mixed one; while others wait; with several choices.
    for failing in [0, 1, 3, 6] {
        let (gate, opened) = mpsc::channel::<()>();
        let setup = Setup::new(plain()).sequences(2).chunk(16);
        let engine = setup.start_with(move |step| {
            if step == 0 {
                let _ = opened.recv();
            }
            match step == failing {
                true => MockStep::Fail("the device is on fire".to_owned()),
                false => MockStep::Run,
            }
        });
        let request = |n| Request {
            n,
            ..Request::new(prompt(20, 8), 10)
        };
        let choices = [1, 3, 2, 1];
        let streams = choices.map(|n| engine.submit(request(n)).unwrap());
        drop(gate);
        for (stream, n) in streams.into_iter().zip(choices) {
            let outcomes = read_all(stream);
            assert_eq!(outcomes.len(), n);
            for outcome in outcomes {
                let FinishReason::Error(message) = outcome.end.reason else {
                    panic!("{:?}", outcome.end.reason);
                };
                assert!(message.contains("the device is on fire"), "{message}");
            }
        }
        wait_until("the engine is dead", || !engine.is_alive());
        let error = engine.submit(request(1)).unwrap_err();
        assert_eq!(error, EngineError::Dead);
        assert!(!error.is_callers_fault() && !error.is_temporary());
        engine.shutdown();
        let stats = engine.stats();
        assert_eq!(
            (stats.blocks_used, stats.live, stats.ended.error),
            (0, 0, 7)
        );
    }
}

#[test]
fn a_panic_ends_all_requests_and_the_engine_says_that_it_is_dead() {
    let engine = Setup::new(plain()).start_with(|step| match step {
        3 => panic!("a bug"),
        _ => MockStep::Run,
    });
    let request = || Request {
        n: 2,
        ..Request::new(prompt(10, 9), 10)
    };
    let streams: Vec<_> = (0..3)
        .filter_map(|_| engine.submit(request()).ok())
        .collect();
    for outcome in streams.into_iter().flat_map(read_all) {
        let FinishReason::Error(message) = outcome.end.reason else {
            panic!("an error was expected");
        };
        assert!(
            message.contains("internal error: a bug") || message.contains("the engine stopped")
        );
    }
    wait_until("the engine is dead", || !engine.is_alive());
    let error = engine.submit(Request::new(prompt(10, 9), 10)).unwrap_err();
    assert_eq!(error, EngineError::Dead);
    engine.shutdown();
}

#[test]
fn a_model_with_an_encoder_needs_a_token_to_start_from() {
    let setup = Setup::new(layout(&[
        group(Retention::Full, 16),
        group(Retention::Encoder, 16),
    ]));
    let error = Engine::start(Box::new(setup.mock()), setup.options).unwrap_err();
    assert_eq!(error, EngineError::NoStart { group: 1 });
}

#[test]
fn options_of_zero_are_refused() {
    type Set = fn(&mut EngineOptions, usize);
    let cases: [(&str, Set); 5] = [
        ("vocabulary", |o, v| o.vocabulary = v),
        ("context", |o, v| o.context = v),
        ("kv_pages", |o, v| o.kv_pages = v),
        ("max_sequences", |o, v| o.max_sequences = v),
        ("max_batched_tokens", |o, v| o.max_batched_tokens = v),
    ];
    for (option, set) in cases {
        let mut setup = Setup::new(plain());
        set(&mut setup.options, 0);
        let error = Engine::start(Box::new(setup.mock()), setup.options).unwrap_err();
        let message = format!("the option {option} is 0, it must be above 0");
        assert_eq!(error.to_string(), message);
        let mut setup = Setup::new(plain());
        set(&mut setup.options, 1);
        Engine::start(Box::new(setup.mock()), setup.options).unwrap();
    }
}

#[test]
fn a_shutdown_ends_what_runs_and_refuses_what_comes() {
    let engine = Setup::new(plain()).start_with(|_| {
        std::thread::sleep(Duration::from_millis(2));
        MockStep::Run
    });
    let streams: Vec<_> = (0..3)
        .map(|_| engine.submit(Request::new(prompt(10, 1), 300)).unwrap())
        .collect();
    engine.shutdown();
    for stream in streams {
        assert_eq!(read(stream).end.reason, FinishReason::Abort);
    }
    let error = engine.submit(Request::new(prompt(10, 1), 3)).unwrap_err();
    assert_eq!(error, EngineError::ShuttingDown);
    assert!(!engine.is_alive());
    engine.shutdown();
}

#[test]
fn requests_outlive_the_last_handle() {
    let engine = Setup::new(plain()).start();
    let stream = engine.submit(Request::new(prompt(10, 1), 100)).unwrap();
    drop(engine);
    assert_eq!(read(stream).tokens, greedy(&plain(), &prompt(10, 1), 100));
}

#[test]
fn events_can_be_read_in_async_code() {
    let engine = Setup::new(plain()).start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let tokens = runtime.block_on(async {
        let mut stream = engine.submit(Request::new(prompt(10, 1), 20)).unwrap();
        let mut tokens = Vec::new();
        while let Some(event) = stream.recv_async().await {
            if let Event::Token { id, .. } = event {
                tokens.push(id);
            }
        }
        tokens
    });
    assert_eq!(tokens, greedy(&plain(), &prompt(10, 1), 20));
}

/// Remembers which threads it was called from, and wakes one.
struct Caller {
    reader: std::thread::Thread,
    names: Mutex<BTreeSet<Option<String>>>,
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        let name = std::thread::current().name().map(str::to_owned);
        self.names.lock().unwrap().insert(name);
        self.reader.unpark();
    }
}

#[test]
fn readers_are_not_woken_by_the_worker() {
    let engine = Setup::new(plain()).start();
    let caller = Arc::new(Caller {
        reader: std::thread::current(),
        names: Mutex::default(),
    });
    let waker = Waker::from(caller.clone());
    let mut context = Context::from_waker(&waker);
    for length in [1, 50] {
        let mut stream = engine.submit(Request::new(prompt(10, 1), length)).unwrap();
        let mut events = 0;
        loop {
            match pin!(stream.recv_async()).poll(&mut context) {
                Poll::Ready(Some(_)) => events += 1,
                Poll::Ready(None) => break,
                Poll::Pending => std::thread::park(),
            }
        }
        assert_eq!(events, length + 1);
    }
    // A reader waits until the first token is there, so it was woken at least once.
    let names = caller.names.lock().unwrap();
    assert_eq!(*names, BTreeSet::from([Some("mettle-bell".to_owned())]));
}

#[test]
fn what_a_broken_step_cached_is_not_used_again() {
    let engine = Setup::new(plain()).start_with(|step| match step {
        0 => MockStep::NotANumber,
        _ => MockStep::Run,
    });
    let request = || Request::new(prompt(40, 8), 3);
    assert!(matches!(
        ask(&engine, request()).end.reason,
        FinishReason::Error(_)
    ));
    assert_eq!(ask(&engine, request()).end.usage.cached, 0);
    assert_eq!(ask(&engine, request()).end.usage.cached, 32);
}
