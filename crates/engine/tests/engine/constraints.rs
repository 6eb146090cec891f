//! Owns requests whose output follows a constraint: what it allows, how it ends, and that a bad one harms no other.

use crate::setup::*;
use mettle_engine::{
    ConstraintError, Engine, EngineHandle, EngineOptions, FinishReason, Request, SamplingParams,
    StopCause, TokenConstraint, TokenMask,
};
use std::time::{Duration, Instant};

/// Allows ids in steps of `stride`: first multiples of it, then those one above, and so on, for `length` tokens.
#[derive(Clone, Debug)]
struct Strides {
    stride: u32,
    length: usize,
    accepted: Vec<u32>,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq)]
enum Fault {
    None,
    /// Each mask takes this long.
    Slow(Duration),
    /// The third mask never comes.
    Hangs,
    FailsToMask,
    FailsToAccept,
    Panics,
    AllowsNothing,
}

impl Strides {
    fn boxed(stride: u32, length: usize, fault: Fault) -> Option<Box<dyn TokenConstraint>> {
        Some(Box::new(Strides {
            stride,
            length,
            accepted: Vec::new(),
            fault,
        }))
    }

    fn allows(stride: u32, place: usize, id: u32) -> bool {
        id % stride == place as u32 % stride
    }
}

impl TokenConstraint for Strides {
    fn mask(&mut self, out: &mut TokenMask) -> Result<(), ConstraintError> {
        let place = self.accepted.len();
        match &self.fault {
            Fault::Slow(time) => std::thread::sleep(*time),
            Fault::Hangs if place == 2 => loop {
                std::thread::sleep(Duration::from_secs(60));
            },
            Fault::FailsToMask if place == 2 => return Err(ConstraintError("no mask".to_owned())),
            Fault::Panics if place == 2 => panic!("part of the test"),
            Fault::AllowsNothing if place == 2 => return Ok(()),
            _ => {}
        }
        let ids = 0..out.vocabulary() as u32;
        ids.filter(|id| Strides::allows(self.stride, place, *id))
            .for_each(|id| out.allow(id));
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        if self.fault == Fault::FailsToAccept && self.accepted.len() == 2 {
            return Err(ConstraintError("not this one".to_owned()));
        }
        if !Strides::allows(self.stride, self.accepted.len(), token) {
            return Err(ConstraintError(format!("{token} was not allowed")));
        }
        self.accepted.push(token);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.accepted.len() == self.length
    }

    fn fork(&self) -> Box<dyn TokenConstraint> {
        Box::new(self.clone())
    }
}

fn request(stride: u32, length: usize, fault: Fault) -> Request {
    Request {
        constraint: Strides::boxed(stride, length, fault),
        ..Request::new(prompt(40, 1), 30)
    }
}

fn check_strides(tokens: &[u32], stride: u32) {
    for (place, id) in tokens.iter().enumerate() {
        assert!(Strides::allows(stride, place, *id), "{id} at {place}");
    }
}

#[test]
fn every_token_is_allowed_and_the_constraint_ends_the_choice() {
    for layout in layouts() {
        let engine = Setup::new(layout).sequences(4).chunk(16).start();
        let outcome = ask(&engine, request(7, 12, Fault::None));
        assert_eq!(outcome.tokens.len(), 12);
        check_strides(&outcome.tokens, 7);
        let by = StopCause::Constraint;
        assert_eq!(outcome.end.reason, FinishReason::Stop { by });
        // The limit may come first, in the very step in which the constraint would end, too.
        for length in [30, 31, 100] {
            let outcome = ask(&engine, request(7, length, Fault::None));
            assert_eq!(outcome.tokens.len(), 30);
            assert_eq!(outcome.end.reason, FinishReason::Length);
        }
    }
}

#[test]
fn a_device_that_finds_the_largest_logit_is_not_asked_under_a_constraint() {
    let setup = Setup::new(plain());
    let options = EngineOptions {
        device_finds_largest: true,
        ..setup.options.clone()
    };
    let mock = setup.mock().with_top_k();
    let engine = Engine::start(Box::new(mock), options).unwrap();
    let outcome = ask(&engine, request(7, 12, Fault::None));
    assert_eq!(outcome.tokens.len(), 12);
    check_strides(&outcome.tokens, 7);
}

#[test]
fn constrained_tokens_do_not_depend_on_company_or_preemption() {
    let sampled = |index: u32| Request {
        sampling: SamplingParams {
            temperature: 1.0,
            seed: Some(u64::from(index)),
            ..SamplingParams::default()
        },
        n: 1 + index as usize % 3,
        constraint: (!index.is_multiple_of(4))
            .then(|| Strides::boxed(3 + index, 15, Fault::None))
            .flatten(),
        ..Request::new(prompt(20 + index as usize, index % 2), 20)
    };
    let tokens = |engine: &EngineHandle, index| {
        let outcomes = read_all(engine.submit(sampled(index)).unwrap());
        outcomes.into_iter().map(|o| o.tokens).collect::<Vec<_>>()
    };
    let alone = Setup::new(plain()).sequences(4).start();
    let expected: Vec<_> = (0..10).map(|i| tokens(&alone, i)).collect();
    let (engine, gate) = Setup::new(plain())
        .sequences(16)
        .pages(12)
        .chunk(20)
        .start_held();
    let streams: Vec<_> = (0..10)
        .map(|i| engine.submit(sampled(i)).unwrap())
        .collect();
    drop(gate);
    for ((stream, expected), index) in streams.into_iter().zip(expected).zip(0u32..) {
        let found: Vec<_> = read_all(stream).into_iter().map(|o| o.tokens).collect();
        assert_eq!(found, expected);
        if !index.is_multiple_of(4) {
            found
                .iter()
                .for_each(|tokens| check_strides(tokens, 3 + index));
        }
    }
    assert!(engine.stats().preemptions > 0);
}

#[test]
fn a_failing_constraint_ends_its_choice_alone() {
    let engine = Setup::new(plain()).sequences(8).start();
    let cases = [
        (Fault::FailsToMask, 2, "the constraint failed: no mask"),
        (
            Fault::FailsToAccept,
            3,
            "the constraint failed: not this one",
        ),
        (
            Fault::Panics,
            2,
            "the constraint failed: the constraint panicked",
        ),
        (
            Fault::AllowsNothing,
            2,
            "no token can follow at position 42",
        ),
    ];
    for (fault, made, message) in cases {
        let others: Vec<_> = (0..3)
            .map(|i| engine.submit(Request::new(prompt(20, i), 30)).unwrap())
            .collect();
        let fine = engine.submit(request(5, 20, Fault::None)).unwrap();
        let outcome = ask(&engine, request(7, 20, fault));
        assert_eq!(outcome.tokens.len(), made, "{message}");
        let FinishReason::Error(found) = outcome.end.reason else {
            panic!("{:?}", outcome.end.reason);
        };
        assert!(found.contains(message), "{found}");
        assert_eq!(read(fine).tokens.len(), 20);
        for (stream, seed) in others.into_iter().zip(0..) {
            assert_eq!(read(stream).tokens, greedy(&plain(), &prompt(20, seed), 30));
        }
    }
    assert!(engine.is_alive());
}

#[test]
fn a_slow_constraint_delays_others_by_a_bounded_time() {
    let engine = Setup::new(plain()).sequences(8).start();
    // 30 masks of 100 ms each: three seconds.
    let slow = engine
        .submit(request(7, 100, Fault::Slow(Duration::from_millis(100))))
        .unwrap();
    let start = Instant::now();
    let fast = ask(&engine, Request::new(prompt(20, 3), 30));
    // 30 steps, each of which waits 2 ms at the most.
    assert!(
        start.elapsed() < Duration::from_millis(1000),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(fast.tokens, greedy(&plain(), &prompt(20, 3), 30));
    let slow = read(slow);
    check_strides(&slow.tokens, 7);
    assert_eq!(slow.tokens.len(), 30);
}

#[test]
fn constraints_that_hang_end_with_an_error_and_leave_room_for_others() {
    let mut setup = Setup::new(plain()).sequences(8);
    setup.options.constraint_time = Duration::from_millis(200);
    let engine = setup.start();
    // Three: more than there are threads at first.
    let hanging: Vec<_> = (0..3)
        .map(|_| engine.submit(request(7, 20, Fault::Hangs)).unwrap())
        .collect();
    for stream in hanging {
        let outcome = read(stream);
        let FinishReason::Error(message) = outcome.end.reason else {
            panic!("{:?}", outcome.end.reason);
        };
        assert_eq!(message, "the constraint took longer than 200ms for a token");
        assert!(outcome.tokens.len() <= 2);
    }
    assert_eq!(ask(&engine, request(7, 20, Fault::None)).tokens.len(), 20);
    engine.shutdown();
}

#[test]
fn an_aborted_choice_forgets_its_constraint() {
    let engine = Setup::new(plain()).start();
    let slow = request(7, 100, Fault::Slow(Duration::from_millis(50)));
    let stream = engine.submit(slow).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(stream);
    wait_until("it ends", || engine.stats().live == 0);
    assert_eq!(ask(&engine, request(7, 4, Fault::None)).tokens.len(), 4);
}
