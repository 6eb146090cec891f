//! Owns the proof that company, preemption and priorities change no token, and that the limits of a step hold.

use crate::setup::*;
use mettle_engine::mock::MockStep;
use mettle_engine::{EngineHandle, EngineOptions, FinishReason, Request, SamplingParams};
use mettle_plan::{PageLayout, Retention};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

/// Half of them greedy, half drawn with everything that has a state.
fn request(index: u32) -> Request {
    let drawn = SamplingParams {
        temperature: 1.0,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.01,
        typical_p: 0.95,
        repetition_penalty: 1.2,
        presence_penalty: 0.2,
        frequency_penalty: 0.1,
        bad_words: vec![vec![3], vec![5, 7]],
        seed: Some(u64::from(index)),
        ..SamplingParams::default()
    };
    let sampling = match index.is_multiple_of(2) {
        true => SamplingParams::default(),
        false => drawn,
    };
    Request {
        sampling,
        // Neighbours share a prefix of 30 tokens.
        ..Request::new(
            [
                prompt(30, index / 2),
                prompt(3 * index as usize % 40, index),
            ]
            .concat(),
            25,
        )
    }
}

fn alone(layout: &PageLayout, count: u32) -> Vec<Vec<u32>> {
    let answer = |index| {
        let engine = Setup::new(layout.clone()).start();
        ask(&engine, request(index)).tokens
    };
    (0..count).map(answer).collect()
}

/// All of them at once; a gate is opened when they are there.
fn together(engine: &EngineHandle, count: u32, gate: Option<Sender<()>>) -> Vec<Vec<u32>> {
    let streams: Vec<_> = (0..count)
        .map(|i| engine.submit(request(i)).unwrap())
        .collect();
    drop(gate);
    let outcomes = streams.into_iter().map(read);
    outcomes.map(|outcome| outcome.tokens).collect()
}

#[test]
fn a_batch_of_24_answers_like_24_alone() {
    for layout in layouts() {
        let expected = alone(&layout, 24);
        for chunk in [24, 37, 512] {
            let setup = Setup::new(layout.clone()).pages(300).sequences(24);
            let (engine, gate) = setup.chunk(chunk).start_held();
            let first = together(&engine, 24, Some(gate));
            assert_eq!(first, expected, "chunks of {chunk}");
            // In small chunks the first ones end before the last have begun.
            let largest = engine.recent_steps().iter().map(|s| s.sequences).max();
            assert!(chunk < 512 || largest == Some(24), "{largest:?} in a step");
            // Again, with what the first time left in the cache.
            let again = together(&engine, 24, None);
            assert_eq!(again, expected, "after prefix hits");
            assert_eq!(engine.stats().preemptions, 0);
        }
    }
}

#[test]
fn preemptions_change_no_token() {
    for layout in layouts() {
        let expected = alone(&layout, 24);
        for pages in [9, 14, 30] {
            let setup = Setup::new(layout.clone()).pages(pages).sequences(24);
            let (engine, gate) = setup.chunk(40).start_held();
            let found = together(&engine, 24, Some(gate));
            assert_eq!(found, expected, "{pages} pages");
            // What only has windows soon stops growing.
            let grows = layout.groups.iter().any(|g| g.retention == Retention::Full);
            assert!(!grows || engine.stats().preemptions > 0, "{pages} pages");
            assert_eq!(engine.stats().blocks_used, 0);
        }
    }
}

#[test]
fn a_preempted_request_keeps_what_it_asked_for() {
    let asked = |index| Request {
        logprobs: Some(2),
        prompt_logprobs: Some(1),
        ..request(index)
    };
    let small = Setup::new(plain()).pages(9).sequences(24).chunk(13);
    let (engine, gate) = small.start_held();
    let streams: Vec<_> = (0..12).map(|i| engine.submit(asked(i)).unwrap()).collect();
    drop(gate);
    let outcomes: Vec<_> = streams.into_iter().map(read).collect();
    assert!(engine.stats().preemptions > 0);
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let alone = ask(&Setup::new(plain()).start(), asked(index as u32));
        assert_eq!(outcome.tokens, alone.tokens);
        assert_eq!(outcome.logprobs, alone.logprobs);
        assert_eq!(outcome.prompt_logprobs, alone.prompt_logprobs);
        assert_eq!(outcome.end.usage, alone.end.usage);
    }
}

#[test]
fn no_step_exceeds_the_limits_and_all_are_reached() {
    for (sequences, chunk) in [(1, 7), (3, 8), (4, 4), (8, 64)] {
        let setup = Setup::new(plain()).sequences(sequences).chunk(chunk);
        let (engine, gate) = setup.start_held();
        together(&engine, 12, Some(gate));
        let steps = engine.recent_steps();
        let most_tokens = steps.iter().map(|s| s.tokens as usize).max();
        let most_sequences = steps.iter().map(|s| s.sequences as usize).max();
        assert_eq!(
            (most_tokens, most_sequences),
            (Some(chunk), Some(sequences))
        );
    }
    // More sequences than a step has tokens: as many as it has.
    let (engine, gate) = Setup::new(plain()).sequences(6).chunk(3).start_held();
    together(&engine, 8, Some(gate));
    let most = engine.recent_steps().iter().map(|s| s.sequences).max();
    assert_eq!(most, Some(3));
}

#[test]
fn the_queue_holds_what_it_says_and_not_one_more() {
    for (sequences, max_queue) in [(1, 0), (1, 1), (3, 2)] {
        let (gate, opened) = mpsc::channel::<()>();
        let mut setup = Setup::new(plain()).sequences(sequences);
        setup.options.max_queue = max_queue;
        let engine = setup.start_with(move |_| {
            let _ = opened.recv();
            MockStep::Run
        });
        let fits = sequences + max_queue;
        let streams: Vec<_> = (0..fits)
            .map(|i| engine.submit(request(i as u32)).unwrap())
            .collect();
        let refused = engine.submit(request(99)).unwrap_err();
        assert!(refused.is_temporary(), "{refused}");
        assert_eq!(
            refused.to_string(),
            format!(
                "the queue is full: {fits} requests are running or waiting, the limit is {fits}"
            )
        );
        drop(gate);
        streams.into_iter().for_each(|stream| drop(read(stream)));
        // One below the limit again, and at it.
        let one = engine.submit(request(0)).unwrap();
        read(one);
    }
}

#[test]
fn a_more_urgent_request_overtakes_those_that_wait() {
    let (gate, opened) = mpsc::channel::<()>();
    let engine = Setup::new(plain()).sequences(1).start_with(move |_| {
        let _ = opened.recv();
        std::thread::sleep(Duration::from_millis(1));
        MockStep::Run
    });
    let with_priority = |index, priority| Request {
        priority,
        ..request(index)
    };
    let patient: Vec<_> = (0..6)
        .map(|i| engine.submit(with_priority(i, 5)).unwrap())
        .collect();
    gate.send(()).unwrap();
    wait_until("one runs", || engine.stats().running > 0);
    let urgent = engine.submit(with_priority(6, -5)).unwrap();
    drop(gate);
    let expected = alone(&plain(), 7);
    assert_eq!(read(urgent).tokens, expected[6]);
    // The one that ran, the urgent one, and perhaps a part of the next.
    let made = engine.stats().generated_tokens;
    assert!(made < 3 * 25, "{made} tokens were made before");
    for (stream, expected) in patient.into_iter().zip(&expected) {
        assert_eq!(read(stream).tokens, *expected);
    }
}

#[test]
fn a_request_ends_at_its_deadline_wherever_it_is() {
    let slow = |_| {
        std::thread::sleep(Duration::from_millis(5));
        MockStep::Run
    };
    let engine = Setup::new(plain()).sequences(1).start_with(slow);
    let start = Instant::now();
    let until = |milliseconds| Request {
        deadline: Some(start + Duration::from_millis(milliseconds)),
        ..Request::new(prompt(10, 1), 300)
    };
    let running = engine.submit(until(400)).unwrap();
    let waiting = engine.submit(until(50)).unwrap();
    let waiting = read(waiting);
    assert_eq!(waiting.end.reason, FinishReason::Deadline);
    assert_eq!(waiting.tokens.len(), 0);
    let running = read(running);
    assert_eq!(running.end.reason, FinishReason::Deadline);
    assert!(!running.tokens.is_empty() && running.tokens.len() < 300);
    assert!(start.elapsed() >= Duration::from_millis(400));
    // One that has passed already, and one that is far enough away.
    assert_eq!(ask(&engine, until(0)).end.reason, FinishReason::Deadline);
    let enough = Request {
        max_tokens: 3,
        ..until(60_000)
    };
    assert_eq!(ask(&engine, enough).end.reason, FinishReason::Length);
    assert_eq!(engine.stats().ended.deadline, 3);
}

#[test]
fn greedy_tokens_may_come_from_the_device() {
    for layout in layouts() {
        let expected = alone(&layout, 10);
        let setup = Setup::new(layout.clone()).sequences(10);
        let options = EngineOptions {
            device_finds_largest: true,
            ..setup.options.clone()
        };
        let mock = setup.mock().with_top_k();
        let engine = mettle_engine::Engine::start(Box::new(mock), options).unwrap();
        // Mixed steps need all logits, steps of greedy ones alone do not.
        assert_eq!(together(&engine, 10, None), expected);
        let greedy = (0..10u32).filter(|i| i.is_multiple_of(2));
        for index in greedy {
            let outcome = ask(&engine, request(index));
            assert_eq!(outcome.tokens, expected[index as usize]);
            let with_logprobs = Request {
                logprobs: Some(1),
                ..request(index)
            };
            assert!(ask(&engine, with_logprobs).logprobs[0].is_some());
            // Greedy, but not the largest logit: the first token may not come again.
            let barred = Request {
                eos_ids: vec![outcome.tokens[0]],
                min_tokens: 25,
                ..request(index)
            };
            let patient = ask(&engine, barred.clone()).tokens;
            assert!(!patient.contains(&outcome.tokens[0]));
            let host = Setup::new(layout.clone()).start();
            assert_eq!(patient, ask(&host, barred).tokens);
        }
    }
}
