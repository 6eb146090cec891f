//! Owns the property that every request ends and every block comes back, with readers, drops, aborts and failures on
//! threads of their own. What the scheduler does step by step is tested next to it.

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
    AbortsOneAfter(usize),
}

#[derive(Clone, Debug)]
struct Call {
    length: usize,
    seed: u32,
    max_tokens: usize,
    n: usize,
    priority: i32,
    scores_prompt: bool,
    manner: Manner,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let manner = prop_oneof![
        4 => Just(Manner::ReadsAll),
        1 => (0..20usize).prop_map(Manner::DropsAfter),
        1 => (0..20usize).prop_map(Manner::AbortsAfter),
        1 => (0..20usize).prop_map(Manner::AbortsOneAfter),
    ];
    let call = (
        1..80usize,
        0..3u32,
        1..40usize,
        prop_oneof![3 => Just(1usize), 1 => 2..6usize],
        -1..2i32,
        proptest::bool::weighted(0.2),
        manner,
    )
        .prop_map(
            |(length, seed, max_tokens, n, priority, scores_prompt, manner)| Call {
                length,
                seed,
                max_tokens,
                n,
                priority,
                scores_prompt,
                manner,
            },
        );
    proptest::collection::vec(call, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever is asked, dropped, aborted and failing: each choice ends once, with a right beginning of its answer,
    /// and all blocks come back.
    #[test]
    fn every_request_ends_and_blocks_are_conserved(
        calls in calls(),
        which in 0..layouts().len(),
        pages in 3..40usize,
        sequences in 1..6usize,
        chunk in 1..70usize,
        logit_rows in 1..20usize,
        failing in proptest::option::weighted(0.3, 0..60u64),
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
                n: call.n,
                priority: call.priority,
                prompt_logprobs: call.scores_prompt.then_some(0),
                ..Request::new(prompt.clone(), call.max_tokens)
            };
            match engine.submit(request) {
                Ok(stream) => streams.push((call, prompt, stream)),
                Err(EngineError::CacheTooSmall { .. } | EngineError::QueueFull { .. }) => {}
                Err(EngineError::Dead) => prop_assert!(failing.is_some()),
                Err(error) => panic!("{error}"),
            }
        }
        for (call, prompt, mut stream) in streams {
            let mut tokens = vec![Vec::new(); call.n];
            let mut ends = vec![None; call.n];
            loop {
                let count: usize = tokens.iter().map(Vec::len).sum();
                match call.manner {
                    Manner::DropsAfter(limit) if count >= limit => break,
                    Manner::AbortsAfter(limit) if count >= limit => stream.abort(),
                    Manner::AbortsOneAfter(limit) if count >= limit => stream.abort_choice(0),
                    _ => {}
                }
                match stream.recv() {
                    Some(Event::Token { choice, id, .. }) => tokens[choice].push(id),
                    Some(Event::PromptLogprobs(scored)) => prop_assert_eq!(scored.len(), prompt.len()),
                    Some(Event::Finished(end)) => {
                        prop_assert!(ends[end.choice].replace(end.reason).is_none(), "two terminal events");
                    }
                    None => break,
                }
            }
            let expected = greedy(&layout, &prompt, call.max_tokens);
            for (choice, (tokens, end)) in tokens.iter().zip(ends).enumerate() {
                prop_assert_eq!(tokens, &expected[..tokens.len()]);
                match (end, call.manner) {
                    (None, Manner::DropsAfter(_)) => {}
                    (Some(FinishReason::Length), _) => prop_assert_eq!(tokens.len(), call.max_tokens),
                    (Some(FinishReason::Abort), Manner::AbortsAfter(_)) => {}
                    (Some(FinishReason::Abort), Manner::AbortsOneAfter(_)) => prop_assert_eq!(choice, 0),
                    (Some(FinishReason::Error(_)), _) => prop_assert!(failing.is_some()),
                    other => panic!("{other:?}"),
                }
            }
        }
        wait_until("nothing is left", || {
            let stats = engine.stats();
            stats.running + stats.waiting + stats.blocks_used == 0
        });
        prop_assert!(engine.is_alive() || failing.is_some());
    }
}
