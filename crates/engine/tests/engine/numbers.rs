//! Owns what the engine says about itself: counts, histograms, steps, the map of pages.

use crate::setup::*;
use mettle_engine::mock::MockStep;
use mettle_engine::pager::BlockState;
use mettle_engine::{Event, Request, SamplingParams};
use std::sync::mpsc;

#[test]
fn histograms_count_every_token_choice_and_step() {
    let engine = Setup::new(plain()).sequences(4).start();
    for (n, max_tokens) in [(1, 1), (1, 10), (3, 5)] {
        let request = Request {
            n,
            ..Request::new(prompt(20, 1), max_tokens)
        };
        read_all(engine.submit(request).unwrap());
    }
    let histograms = engine.histograms();
    assert_eq!(histograms.time_to_first_token.count(), 5);
    assert_eq!(histograms.inter_token_latency.count(), 9 + 3 * 4);
    // Of the choices with more than one token.
    assert_eq!(histograms.time_per_output_token.count(), 4);
    for of_choices in [
        &histograms.end_to_end,
        &histograms.queue_time,
        &histograms.prefill_time,
        &histograms.decode_time,
        &histograms.inference_time,
    ] {
        assert_eq!(of_choices.count(), 5);
    }
    assert_eq!(histograms.generated_tokens.sum, 1.0 + 10.0 + 15.0);
    // Of requests.
    assert_eq!(histograms.prompt_tokens.sum, 60.0);
    assert_eq!(
        (histograms.choices.count(), histograms.choices.sum),
        (3, 5.0)
    );
    assert_eq!(histograms.max_tokens.sum, 16.0);
    let stats = engine.stats();
    assert_eq!(histograms.step_time.count(), stats.steps);
    let steps = engine.recent_steps();
    assert_eq!(steps.len() as u64, stats.steps);
    let computed: u32 = steps.iter().map(|s| s.tokens).sum();
    assert_eq!(histograms.step_tokens.sum, f64::from(computed));
    let whole = histograms.end_to_end.sum;
    let parts = histograms.queue_time.sum + histograms.inference_time.sum;
    assert!((whole - parts).abs() < 1e-6, "{whole} {parts}");
}

#[test]
fn the_map_shows_free_cached_used_and_shared_pages() {
    let (gate, opened) = mpsc::channel::<()>();
    let engine = Setup::new(plain())
        .pages(20)
        .sequences(4)
        .start_with(move |_| {
            let _ = opened.recv();
            MockStep::Run
        });
    let count = |state| {
        let map = engine.page_map();
        assert_eq!(map.len(), 20);
        map.iter().filter(|s| **s == state).count()
    };
    assert_eq!(count(BlockState::Free), 20);
    let request = Request {
        n: 2,
        sampling: SamplingParams {
            temperature: 1.0,
            seed: Some(1),
            ..SamplingParams::default()
        },
        ..Request::new(prompt(40, 1), 20)
    };
    let mut stream = engine.submit(request).unwrap();
    gate.send(()).unwrap();
    gate.send(()).unwrap();
    // Three pages of prompt; the choices share two and have their own third.
    while !matches!(stream.recv(), Some(Event::Token { choice: 1, .. })) {}
    wait_until("the choices go apart", || {
        (engine.stats().blocks_used, engine.stats().blocks_shared) == (4, 2)
    });
    // Asks for a picture, which the next step draws.
    engine.page_map();
    gate.send(()).unwrap();
    wait_until("the map is drawn", || {
        count(BlockState::Shared) == 2 && count(BlockState::Used) == 2
    });
    drop(gate);
    while stream.recv().is_some() {}
    wait_until("pages are given back", || count(BlockState::Used) == 0);
    let stats = engine.stats();
    assert_eq!(count(BlockState::Cached), stats.blocks_cached);
    assert_eq!(
        count(BlockState::Free),
        stats.blocks_free - stats.blocks_cached
    );
    assert!(stats.blocks_cached >= 4);
}
