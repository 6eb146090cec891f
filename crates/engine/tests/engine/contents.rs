//! Owns what a request's events hold: stop causes, limits, log-probabilities.

use crate::setup::*;
use mettle_engine::mock::{MOCK_HIDDEN, MockExecutable, MockStep};
use mettle_engine::{Event, FinishReason, Pooling, Request, StopCause, TokenLogprobs};
use mettle_plan::Retention;

#[test]
fn end_tokens_stop_ids_and_limits_end_a_request() {
    let engine = Setup::new(plain()).start();
    let prompt = prompt(10, 4);
    let expected = greedy(&plain(), &prompt, 40);
    let plain_request = || Request::new(prompt.clone(), 40);
    // The first place where each token appears, so that an end token is not met earlier.
    let stop = (5..40)
        .find(|i| !expected[..*i].contains(&expected[*i]))
        .unwrap();
    let with_eos = || Request {
        eos_ids: vec![expected[stop]],
        ..plain_request()
    };

    let ended = ask(&engine, with_eos());
    assert_eq!(ended.tokens, expected[..=stop]);
    assert_eq!(ended.end.reason, FinishReason::Stop { by: StopCause::Eos });

    let ignored = ask(
        &engine,
        Request {
            ignore_eos: true,
            ..with_eos()
        },
    );
    assert_eq!(
        (ignored.tokens, ignored.end.reason),
        (expected.clone(), FinishReason::Length)
    );

    let by_id = Request {
        stop_ids: vec![expected[stop]],
        ..plain_request()
    };
    let stopped = ask(&engine, by_id.clone());
    let cause = StopCause::StopId(expected[stop]);
    assert_eq!(stopped.tokens, expected[..=stop]);
    assert_eq!(stopped.end.reason, FinishReason::Stop { by: cause });

    // As many tokens as come before the stop id: it may come. One more: it may not.
    let with_least = |min_tokens| Request {
        min_tokens,
        ..by_id.clone()
    };
    assert_eq!(ask(&engine, with_least(stop)).tokens, expected[..=stop]);
    let later = ask(&engine, with_least(stop + 1)).tokens;
    assert_eq!(later[..stop], expected[..stop]);
    assert!(later.len() > stop && later[stop] != expected[stop]);

    assert_eq!(
        ask(&engine, Request::new(prompt.clone(), 1)).tokens,
        expected[..1]
    );
}

#[test]
fn the_token_that_stops_is_marked() {
    let engine = Setup::new(plain()).start();
    let prompt = prompt(10, 4);
    let first = greedy(&plain(), &prompt, 1)[0];
    let request = Request {
        eos_ids: vec![first],
        ..Request::new(prompt, 10)
    };
    let mut stream = engine.submit(request).unwrap();
    let Some(Event::Token { id, is_stop, .. }) = stream.recv() else {
        panic!("a token comes first");
    };
    assert_eq!((id, is_stop), (first, true));
}

#[test]
fn prompt_logprobs_are_whole_in_chunks_and_beyond_the_row_bound() {
    let prompt = prompt(100, 5);
    let request = |max_tokens| Request {
        prompt_logprobs: Some(3),
        logprobs: Some(2),
        ..Request::new(prompt.clone(), max_tokens)
    };
    for (chunk, logit_rows) in [(512, 200), (512, 64), (7, 64), (512, 1), (33, 10)] {
        let mut setup = Setup::new(plain()).chunk(chunk);
        setup.logit_rows = logit_rows;
        let engine = setup.start();
        for max_tokens in [5, 0] {
            let outcome = ask(&engine, request(max_tokens));
            assert_eq!(
                outcome.end.usage.cached, 0,
                "every position has to be computed"
            );
            assert_eq!(outcome.tokens, greedy(&plain(), &prompt, max_tokens));
            assert_eq!(outcome.end.reason, FinishReason::Length);
            let scored = outcome.prompt_logprobs.unwrap();
            assert_eq!(scored.len(), prompt.len());
            assert_eq!(scored[0], None);
            for (position, scored) in scored.iter().enumerate().skip(1) {
                check_logprobs(
                    scored.as_ref().unwrap(),
                    &prompt[..position],
                    prompt[position],
                    3,
                );
            }
            let mut tokens = prompt.clone();
            for (id, scored) in outcome.tokens.iter().zip(&outcome.logprobs) {
                check_logprobs(scored.as_ref().unwrap(), &tokens, *id, 2);
                tokens.push(*id);
            }
        }
    }
    let engine = Setup::new(plain()).start();
    let one = Request {
        prompt_logprobs: Some(1),
        ..Request::new(vec![3], 0)
    };
    assert_eq!(ask(&engine, one).prompt_logprobs, Some(vec![None]));
}

fn check_logprobs(scored: &TokenLogprobs, before: &[u32], id: u32, top: usize) {
    let logits = MockExecutable::logits_after(VOCABULARY, &plain(), before);
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    let expected = f64::from(logits[id as usize]) - sum.ln();
    assert_eq!((scored.id, scored.top.len()), (id, top));
    assert!((f64::from(scored.logprob) - expected).abs() < 1e-5);
}

#[test]
fn vectors_are_whole_in_chunks_and_beyond_the_row_bound() {
    let prompt = prompt(100, 5);
    for layout in layouts() {
        let hidden = |length: usize| MockExecutable::hidden_after(&layout, &prompt[..length]);
        let mut sums = [0.0; MOCK_HIDDEN];
        for length in 1..=prompt.len() {
            let row = hidden(length).into_iter().map(f64::from);
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, value)| *sum += value);
        }
        let mean = sums.map(|sum| (sum / prompt.len() as f64) as f32).to_vec();
        for (chunk, logit_rows) in [(512, 200), (512, 64), (7, 64), (512, 1), (33, 10)] {
            let mut setup = Setup::new(layout.clone()).chunk(chunk);
            setup.logit_rows = logit_rows;
            let engine = setup.start();
            for (pooling, expected) in [
                (Pooling::Mean, &mean),
                (Pooling::Last, &hidden(prompt.len())),
                (Pooling::Mean, &mean),
            ] {
                let outcome = ask(&engine, Request::pooled(prompt.clone(), pooling));
                assert_eq!(outcome.end.pooled.as_ref(), Some(expected), "{pooling:?}");
                assert_eq!(outcome.end.reason, FinishReason::Length);
                // A mean needs every position, and leaves its pages for others; a state cannot be shared.
                let has_state = layout
                    .groups
                    .iter()
                    .any(|g| g.retention == Retention::State);
                let may_read = pooling == Pooling::Last && !has_state;
                assert_eq!(outcome.end.usage.cached > 0, may_read, "{pooling:?}");
            }
            assert_eq!(engine.counts().dispatches()["mock"], engine.stats().steps);
            assert!(engine.counts().bytes_moved() > 200);
        }
    }
}

#[test]
fn a_vector_that_is_no_number_ends_its_request_alone() {
    let engine = Setup::new(plain()).start_with(|step| match step {
        0 => MockStep::NotANumber,
        _ => MockStep::Run,
    });
    let request = || Request::pooled(prompt(10, 1), Pooling::Mean);
    let broken = ask(&engine, request());
    assert_eq!(broken.end.pooled, None);
    let FinishReason::Error(message) = broken.end.reason else {
        panic!("{:?}", broken.end.reason);
    };
    assert!(message.contains("column 0 at position 0"), "{message}");
    assert!(ask(&engine, request()).end.pooled.is_some());
}
