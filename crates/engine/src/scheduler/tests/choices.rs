//! Requests for several choices: they share what is the same, and take turns where places are few.

use super::*;

#[test]
fn choices_share_the_prompt_and_copy_only_what_they_write() {
    let mut world = World::new(&plain_shape());
    world.arrive(Arrival {
        n: 3,
        seed: Some(1),
        ..arrival(10, 1, 5)
    });
    assert_eq!(next_step(&mut world), [(0, 10)]);
    // The prompt has three pages, all shared.
    assert_eq!(
        (world.pager.pool().used(), world.pager.pool().shared()),
        (3, 3)
    );
    assert_eq!(next_step(&mut world), [(0, 1), (0, 1), (0, 1)]);
    // Two choices copied the last page, the third owns the original.
    assert_eq!(
        (world.pager.pool().used(), world.pager.pool().shared()),
        (5, 2)
    );
    world.finish();
    world.callers.iter().for_each(|c| c.check(&world.layout));
}

#[test]
fn more_choices_than_places_take_turns() {
    let mut world = World::new(&plain_shape());
    world.arrive(Arrival {
        n: 11,
        seed: Some(1),
        ..arrival(10, 1, 5)
    });
    world.finish();
    world.callers.iter().for_each(|c| c.check(&world.layout));
    let different: std::collections::HashSet<_> = world.callers[0].tokens.iter().collect();
    assert!(different.len() > 8, "choices draw with seeds of their own");
}
