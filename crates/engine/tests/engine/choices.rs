//! Owns several answers to one prompt: computed once, drawn apart, ended one by one.

use crate::setup::*;
use mettle_engine::mock::MockStep;
use mettle_engine::{Event, FinishReason, Request, SamplingParams, StopCause};
use std::collections::HashSet;
use std::time::Duration;

fn request(n: usize) -> Request {
    Request {
        n,
        sampling: SamplingParams {
            temperature: 1.0,
            frequency_penalty: 0.3,
            seed: Some(11),
            ..SamplingParams::default()
        },
        ..Request::new(prompt(37, 2), 20)
    }
}

#[test]
fn choices_are_the_same_whatever_runs_beside_them() {
    for layout in layouts() {
        let engine = Setup::new(layout.clone()).sequences(8).start();
        let alone = read_all(engine.submit(request(6)).unwrap());
        let tokens: Vec<_> = alone.iter().map(|o| o.tokens.clone()).collect();
        assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 6);
        // The first choice is what a request for one gets.
        let one = ask(&Setup::new(layout.clone()).start(), request(1));
        assert_eq!(one.tokens, tokens[0]);
        for (sequences, pages, chunk) in [(1, 200, 512), (4, 200, 7), (8, 9, 512), (24, 14, 25)] {
            let setup = Setup::new(layout.clone()).sequences(sequences);
            let engine = setup.pages(pages).chunk(chunk).start();
            let company = engine.submit(Request::new(prompt(30, 9), 40)).unwrap();
            let outcomes = read_all(engine.submit(request(6)).unwrap());
            for (outcome, expected) in outcomes.iter().zip(&tokens) {
                assert_eq!(
                    outcome.tokens, *expected,
                    "{sequences} places, {pages} pages"
                );
                assert_eq!(outcome.end.reason, FinishReason::Length);
                assert_eq!(outcome.end.usage.prompt, 37);
            }
            assert_eq!(read(company).tokens, greedy(&layout, &prompt(30, 9), 40));
            assert_eq!(engine.stats().blocks_used, 0);
        }
    }
}

#[test]
fn the_prompt_is_computed_once() {
    let engine = Setup::new(plain()).sequences(8).start();
    read_all(engine.submit(request(8)).unwrap());
    let computed: u32 = engine.recent_steps().iter().map(|s| s.tokens).sum();
    assert_eq!(computed as usize, 37 + 8 * 19);
    let stats = engine.stats();
    assert_eq!((stats.prompt_tokens, stats.generated_tokens), (37, 8 * 20));
    assert_eq!((stats.ended.length, stats.live), (8, 0));
}

#[test]
fn one_choice_may_be_aborted_and_the_others_go_on() {
    let engine = Setup::new(plain()).sequences(4).start_with(|_| {
        std::thread::sleep(Duration::from_millis(2));
        MockStep::Run
    });
    let expected = read_all(engine.submit(request(3)).unwrap());
    let mut stream = engine.submit(request(3)).unwrap();
    let mut first = None;
    while first.is_none() {
        if let Some(Event::Token { choice: 1, id, .. }) = stream.recv() {
            first = Some(id);
        }
    }
    stream.abort_choice(1);
    let (mut ends, mut tokens) = (vec![None; 3], vec![Vec::new(); 3]);
    while let Some(event) = stream.recv() {
        match event {
            Event::Token { choice, id, .. } => tokens[choice].push(id),
            Event::Finished(end) => ends[end.choice] = Some(end.reason),
            Event::PromptLogprobs(_) => {}
        }
    }
    assert_eq!(ends[1], Some(FinishReason::Abort));
    assert!(tokens[1].len() < 19);
    for choice in [0, 2] {
        assert_eq!(ends[choice], Some(FinishReason::Length));
        assert!(expected[choice].tokens.ends_with(&tokens[choice]));
    }
}

#[test]
fn choices_that_were_not_yet_made_end_with_their_request() {
    let engine = Setup::new(plain()).chunk(5).sequences(5).start_with(|_| {
        std::thread::sleep(Duration::from_millis(5));
        MockStep::Run
    });
    // In the middle of the prompt.
    let stream = engine.submit(request(5)).unwrap();
    wait_until("it runs", || engine.stats().running == 1);
    stream.abort();
    for outcome in read_all(stream) {
        assert_eq!(
            (outcome.tokens.len(), outcome.end.reason),
            (0, FinishReason::Abort)
        );
    }
    // One choice's abort waits until there are choices.
    let stream = engine.submit(request(2)).unwrap();
    stream.abort_choice(0);
    let outcomes = read_all(stream);
    assert_eq!(outcomes[0].end.reason, FinishReason::Abort);
    assert_eq!(outcomes[1].end.reason, FinishReason::Length);
    wait_until("nothing is left", || engine.stats().blocks_used == 0);
}

#[test]
fn choices_stop_one_by_one() {
    let engine = Setup::new(plain()).sequences(8).start();
    let free = read_all(engine.submit(request(6)).unwrap());
    let stop = free[0].tokens[4];
    let stopping = Request {
        stop_ids: vec![stop],
        ..request(6)
    };
    let outcomes = read_all(engine.submit(stopping).unwrap());
    for (outcome, free) in outcomes.iter().zip(&free) {
        match free.tokens.iter().position(|id| *id == stop) {
            Some(place) => {
                assert_eq!(outcome.tokens, free.tokens[..=place]);
                let by = StopCause::StopId(stop);
                assert_eq!(outcome.end.reason, FinishReason::Stop { by });
            }
            None => assert_eq!(outcome.tokens, free.tokens),
        }
    }
}

#[test]
fn a_prompts_log_probabilities_come_once_for_all_choices() {
    let engine = Setup::new(plain()).chunk(9).sequences(4).start();
    for max_tokens in [0, 1, 5] {
        let scored = Request {
            prompt_logprobs: Some(2),
            max_tokens,
            ..request(3)
        };
        let outcomes = read_all(engine.submit(scored).unwrap());
        assert_eq!(outcomes.len(), 3);
        for outcome in outcomes {
            assert_eq!(outcome.prompt_logprobs.unwrap().len(), 37);
            assert_eq!(outcome.tokens.len(), max_tokens);
            assert_eq!(outcome.end.reason, FinishReason::Length);
        }
    }
}

#[test]
fn broken_logits_end_all_choices_of_a_prompt() {
    let engine = Setup::new(plain())
        .sequences(4)
        .start_with(|step| match step {
            0 => MockStep::NotANumber,
            _ => MockStep::Run,
        });
    for outcome in read_all(engine.submit(request(4)).unwrap()) {
        assert!(matches!(outcome.end.reason, FinishReason::Error(_)));
    }
    assert_eq!(read_all(engine.submit(request(4)).unwrap()).len(), 4);
    assert!(engine.is_alive());
}
