//! Owns the property that every request ends and every block comes back.

use crate::setup::*;
use mettle_engine::mock::MockStep;
use mettle_engine::{EngineError, Event, FinishReason, Request};
use proptest::prelude::*;

/// How a reader treats its stream.
#[derive(Clone, Copy, Debug)]
enum Manner {
    ReadsAll,
    DropsAfter(usize),
    AbortsAfter(usize),
}

#[derive(Clone, Debug)]
struct Call {
    length: usize,
    seed: u32,
    max_tokens: usize,
    scores_prompt: bool,
    manner: Manner,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let manner = prop_oneof![
        4 => Just(Manner::ReadsAll),
        1 => (0..20usize).prop_map(Manner::DropsAfter),
        1 => (0..20usize).prop_map(Manner::AbortsAfter),
    ];
    let call = (
        1..80usize,
        0..3u32,
        1..40usize,
        proptest::bool::weighted(0.2),
        manner,
    )
        .prop_map(|(length, seed, max_tokens, scores_prompt, manner)| Call {
            length,
            seed,
            max_tokens,
            scores_prompt,
            manner,
        });
    proptest::collection::vec(call, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever is asked, dropped, aborted and failing: each request ends once, with a right beginning of its answer,
    /// and all blocks come back.
    #[test]
    fn every_request_ends_and_blocks_are_conserved(
        calls in calls(),
        which in 0..layouts().len(),
        pages in 3..40usize,
        sequences in 1..6usize,
        chunk in 1..70usize,
        logit_rows in 1..20usize,
        failing in proptest::option::of(0..60u64),
    ) {
        let layout = layouts().swap_remove(which);
        let mut setup = Setup::new(layout.clone()).pages(pages).sequences(sequences).chunk(chunk);
        setup.logit_rows = logit_rows;
        setup.options.max_queue = 16;
        let engine = setup.start_with(move |step| match failing == Some(step) {
            true => MockStep::Fail("as asked".to_owned()),
            false => MockStep::Run,
        });
        let mut streams = Vec::new();
        for call in calls {
            let prompt = prompt(call.length, call.seed);
            let request = Request {
                prompt_logprobs: call.scores_prompt.then_some(0),
                ..Request::new(prompt.clone(), call.max_tokens)
            };
            match engine.submit(request) {
                Ok(stream) => streams.push((call, prompt, stream)),
                Err(EngineError::CacheTooSmall { .. } | EngineError::QueueFull { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        for (call, prompt, mut stream) in streams {
            let (mut tokens, mut end) = (Vec::new(), None);
            loop {
                match call.manner {
                    Manner::DropsAfter(count) if tokens.len() == count => break,
                    Manner::AbortsAfter(count) if tokens.len() == count => stream.abort(),
                    _ => {}
                }
                match stream.recv() {
                    Some(Event::Token { id, .. }) => tokens.push(id),
                    Some(Event::PromptLogprobs(scored)) => prop_assert_eq!(scored.len(), prompt.len()),
                    Some(Event::Finished(finished)) => {
                        prop_assert!(end.replace(finished).is_none(), "two terminal events");
                    }
                    None => break,
                }
            }
            prop_assert_eq!(&tokens, &greedy(&layout, &prompt, tokens.len()));
            match (end.map(|e| e.reason), call.manner) {
                (None, Manner::DropsAfter(_)) => {}
                (Some(FinishReason::Length), _) => prop_assert_eq!(tokens.len(), call.max_tokens),
                (Some(FinishReason::Abort), Manner::AbortsAfter(_)) => {}
                (Some(FinishReason::Error(_)), _) => prop_assert!(failing.is_some()),
                other => panic!("{other:?}"),
            }
        }
        wait_until("nothing is left", || {
            let stats = engine.stats();
            stats.running + stats.waiting + stats.blocks_used == 0
        });
        prop_assert!(engine.is_alive());
    }
}
