//! Owns what a request's events hold: stop causes, limits, log-probabilities.

use crate::setup::*;
use mettle_engine::mock::MockExecutable;
use mettle_engine::{Event, FinishReason, Request, StopCause, TokenLogprobs};

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
