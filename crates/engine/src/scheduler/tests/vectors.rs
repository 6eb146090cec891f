//! Requests for vectors: beside those for tokens, and of encoders, which take whole texts.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Every choice of an encoder ends with the vector it would have alone.
    #[test]
    fn encoders_serve_everybody(shape in shapes(), arrivals in pooled_arrivals()) {
        let mut world = World::new(&Shape { layout: layouts().len() - 1, ..shape });
        for (arrival, steps) in arrivals {
            world.arrive(arrival);
            (0..steps).for_each(|_| world.step());
        }
        world.finish();
        let World { callers, layout, .. } = &world;
        prop_assert!(!callers.is_empty());
        callers.iter().for_each(|caller| caller.check(layout));
    }
}

/// Each with the steps that follow it.
fn pooled_arrivals() -> impl Strategy<Value = Vec<(Arrival, usize)>> {
    let pooling = prop_oneof![
        Just(Pooling::Last),
        Just(Pooling::Mean),
        Just(Pooling::First)
    ];
    let prompt = proptest::collection::vec(0..VOCABULARY as u32, 1..=LONGEST_PROMPT);
    let arrival = (prompt, pooling, -1..2i32).prop_map(|(prompt, pooling, priority)| Arrival {
        prompt,
        priority,
        pooling: Some(pooling),
        ..arrival(1, 0, 0)
    });
    proptest::collection::vec((arrival, 0..3usize), 1..20)
}

#[test]
fn an_encoder_takes_whole_texts_and_fills_the_step_with_what_fits() {
    let encoder = Shape {
        layout: layouts().len() - 1,
        chunk: 6,
        ..plain_shape()
    };
    let mut world = World::new(&encoder);
    for length in [30, 40, 15, 1] {
        world.arrive(Arrival {
            pooling: Some(Pooling::Mean),
            ..arrival(length, 1, 0)
        });
    }
    // A step has room for 50. The second waits for the next, which it then goes first in.
    assert_eq!(next_step(&mut world), [(0, 30), (2, 15), (3, 1)]);
    assert_eq!(next_step(&mut world), [(1, 40)]);
    assert!(world.scheduler.is_idle());
}

#[test]
fn vectors_and_tokens_take_turns_and_one_kind_alone_needs_none() {
    let mut world = World::new(&plain_shape());
    let pooled = |length, pooling| Arrival {
        pooling: Some(pooling),
        ..arrival(length, 2, 1)
    };
    world.arrive(arrival(8, 1, 10));
    assert_eq!(next_step(&mut world), [(0, 8)]);
    assert_eq!(next_step(&mut world), [(0, 1)]);
    // A step has rows for eight hidden states: a mean of twenty takes three.
    world.arrive(pooled(20, Pooling::Mean));
    world.arrive(pooled(20, Pooling::Last));
    assert_eq!(next_step(&mut world), [(1, 8)]);
    assert_eq!(world.step.output, OutputKind::Hidden);
    assert_eq!(next_step(&mut world), [(0, 1)]);
    assert_eq!(world.step.output, OutputKind::Logits);
    // The same text again starts from the pages of the mean, and has no row left for its last token.
    assert_eq!(next_step(&mut world), [(1, 8), (2, 11)]);
    assert_eq!(next_step(&mut world), [(0, 1)]);
    assert_eq!(next_step(&mut world), [(2, 1), (1, 4)]);
    assert_eq!(next_step(&mut world), [(0, 1)]);
    assert_eq!(next_step(&mut world), [(0, 1)]);
    world.finish();
    world.callers.iter().for_each(|c| c.check(&world.layout));
}

#[test]
fn a_mean_computes_every_position_and_the_last_reads_the_cache() {
    let mut world = World::new(&plain_shape());
    for (pooling, computed) in [
        (Pooling::Mean, 20),
        // Five pages of four tokens, of which the last token is computed again.
        (Pooling::Last, 4),
        (Pooling::Mean, 20),
    ] {
        world.computed = 0;
        world.arrive(Arrival {
            pooling: Some(pooling),
            ..arrival(20, 1, 1)
        });
        world.finish();
        assert_eq!(world.computed, computed, "{pooling:?}");
    }
    world.callers.iter().for_each(|c| c.check(&world.layout));
}
