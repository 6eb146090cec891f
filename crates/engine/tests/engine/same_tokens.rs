//! Owns the proof that tokens do not depend on chunks, prefix hits or what else runs.

use crate::setup::*;
use mettle_engine::mock::MockStep;
use mettle_engine::{FinishReason, Request, SamplingParams};
use mettle_plan::Retention;
use std::sync::mpsc;

#[test]
fn the_same_tokens_in_any_chunks_and_after_a_prefix_hit() {
    for layout in layouts() {
        let has_state = layout
            .groups
            .iter()
            .any(|g| g.retention == Retention::State);
        for length in [1, 15, 16, 17, 33, 150] {
            let prompt = prompt(length, 3);
            let expected = greedy(&layout, &prompt, 40);
            for chunk in [512, 1, 7, 32, 33] {
                let engine = Setup::new(layout.clone()).chunk(chunk).start();
                let first = ask(&engine, Request::new(prompt.clone(), 40));
                assert_eq!(
                    first.tokens, expected,
                    "{length} tokens in chunks of {chunk}"
                );
                assert_eq!(first.end.reason, FinishReason::Length);
                assert_eq!(
                    (first.end.usage.prompt, first.end.usage.cached),
                    (length, 0)
                );
                let second = ask(&engine, Request::new(prompt.clone(), 40));
                assert_eq!(
                    second.tokens, expected,
                    "{length} tokens after a prefix hit"
                );
                let common = layout.common_tokens();
                let cached = if has_state {
                    0
                } else {
                    (length - 1) / common * common
                };
                assert_eq!(second.end.usage.cached, cached);
                engine.shutdown();
                assert_eq!(engine.stats().blocks_used, 0);
            }
        }
    }
}

#[test]
fn requests_with_a_common_prefix_share_it_unless_their_salts_differ() {
    let engine = Setup::new(plain()).start();
    let shared = prompt(100, 1);
    let longer = |tail: u32| [shared.clone(), prompt(30, tail)].concat();
    assert_eq!(ask(&engine, Request::new(longer(8), 5)).end.usage.cached, 0);
    let second = ask(&engine, Request::new(longer(9), 5));
    assert_eq!(second.end.usage.cached, 96);
    assert_eq!(second.tokens, greedy(&plain(), &longer(9), 5));
    let salted = |salt: &str| Request {
        cache_salt: Some(salt.to_owned()),
        ..Request::new(longer(9), 5)
    };
    assert_eq!(ask(&engine, salted("a")).end.usage.cached, 0);
    assert_eq!(ask(&engine, salted("b")).end.usage.cached, 0);
    assert_eq!(ask(&engine, salted("a")).end.usage.cached, 128);
    let stats = engine.stats();
    assert_eq!(
        (stats.prefix_queries, stats.prefix_hits),
        (5 * 130, 96 + 128)
    );
    assert_eq!((stats.prompt_tokens, stats.generated_tokens), (5 * 130, 25));
    assert!(stats.blocks_cached > 0 && stats.blocks_free == stats.blocks_total);
}

#[test]
fn without_a_prefix_cache_every_prompt_is_computed() {
    let mut setup = Setup::new(plain());
    setup.options.prefix_cache = false;
    let engine = setup.start();
    for _ in 0..2 {
        let outcome = ask(&engine, Request::new(prompt(100, 1), 5));
        assert_eq!(outcome.tokens, greedy(&plain(), &prompt(100, 1), 5));
        assert_eq!(outcome.end.usage.cached, 0);
    }
    let stats = engine.stats();
    assert_eq!((stats.prefix_queries, stats.blocks_cached), (0, 0));
}

#[test]
fn an_answer_is_reused_as_the_prefix_of_the_next_turn() {
    let engine = Setup::new(plain()).start();
    let mut turn = prompt(20, 1);
    turn.extend(ask(&engine, Request::new(turn.clone(), 30)).tokens);
    turn.extend(prompt(10, 2));
    let next = ask(&engine, Request::new(turn.clone(), 5));
    assert_eq!(next.end.usage.cached, 48);
    assert_eq!(next.tokens, greedy(&plain(), &turn, 5));
}

#[test]
fn many_at_once_give_the_same_tokens_as_alone() {
    for layout in layouts() {
        for chunk in [5, 64, 512] {
            let engine = Setup::new(layout.clone()).sequences(4).chunk(chunk).start();
            let sampled = |index: u32| Request {
                sampling: SamplingParams {
                    temperature: 1.0,
                    top_p: 0.9,
                    seed: Some(u64::from(index)),
                    repetition_penalty: 1.2,
                    ..SamplingParams::default()
                },
                ..Request::new(prompt(10 + 17 * index as usize, index % 3), 25)
            };
            let streams: Vec<_> = (0..10)
                .map(|i| engine.submit(sampled(i)).unwrap())
                .collect();
            let together: Vec<_> = streams.into_iter().map(|s| read(s).tokens).collect();
            let alone = Setup::new(layout.clone()).start();
            for (index, tokens) in together.into_iter().enumerate() {
                assert_eq!(
                    tokens,
                    ask(&alone, sampled(index as u32)).tokens,
                    "request {index}"
                );
            }
        }
    }
}

#[test]
fn several_requests_really_run_in_one_step() {
    let (gate, opened) = mpsc::channel::<()>();
    let setup = Setup::new(plain()).sequences(4);
    let engine = setup.start_with(move |_| {
        let _ = opened.recv();
        MockStep::Run
    });
    let streams: Vec<_> = (0..6)
        .map(|i| engine.submit(Request::new(prompt(20, i), 30)).unwrap())
        .collect();
    gate.send(()).unwrap();
    wait_until("four requests run", || engine.stats().running == 4);
    assert_eq!(engine.stats().waiting, 2);
    drop(gate);
    for stream in streams {
        assert_eq!(read(stream).end.reason, FinishReason::Length);
    }
    // One at a time would take 6 x 30 steps.
    assert!(engine.stats().steps < 100, "{} steps", engine.stats().steps);
}

#[test]
fn seeds_make_draws_repeatable_and_their_absence_does_not() {
    let engine = Setup::new(plain()).start();
    let sampled = |seed| Request {
        sampling: SamplingParams {
            temperature: 1.5,
            seed,
            ..SamplingParams::default()
        },
        ..Request::new(prompt(10, 1), 40)
    };
    let first = ask(&engine, sampled(Some(7))).tokens;
    assert_eq!(ask(&engine, sampled(Some(7))).tokens, first);
    assert_ne!(ask(&engine, sampled(Some(8))).tokens, first);
    assert_ne!(
        ask(&engine, sampled(None)).tokens,
        ask(&engine, sampled(None)).tokens
    );
}
