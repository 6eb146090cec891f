//! Owns the threads that compute masks, so that the engine's thread never does.
//!
//! Constraints travel in two rings made with the engine, and sleepers are woken by number: handing one over and taking it
//! back allocates nothing and takes no lock.

use crate::constraint::{ConstraintError, MAX_CONSTRAINT_THREADS, TokenConstraint};
use crate::scheduler::Key;
use crate::token_mask::TokenMask;
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Threads that are started with the first constraint. Two: one that is slow does not hold up the next.
const FIRST_THREADS: usize = 2;

/// A constraint and the mask that it last computed. They travel together, so nothing is allocated on the way.
#[derive(Debug)]
pub(crate) struct Constrained {
    pub constraint: Box<dyn TokenConstraint>,
    pub mask: TokenMask,
}

impl Constrained {
    pub fn new(constraint: Box<dyn TokenConstraint>, vocabulary: usize) -> Box<Constrained> {
        Box::new(Constrained {
            constraint,
            mask: TokenMask::new(vocabulary),
        })
    }

    pub fn fork(&self) -> Box<Constrained> {
        Box::new(Constrained {
            constraint: self.constraint.fork(),
            mask: self.mask.clone(),
        })
    }

    /// Takes the token that was made, if one was, and computes what may come next. False where nothing may.
    fn advance(&mut self, token: Option<u32>) -> Result<bool, ConstraintError> {
        if let Some(token) = token {
            self.constraint.accept(token)?;
            if self.constraint.is_finished() {
                return Ok(false);
            }
        }
        self.mask.clear();
        self.constraint.mask(&mut self.mask)?;
        Ok(true)
    }
}

struct Task {
    choice: Key,
    constrained: Box<Constrained>,
    token: Option<u32>,
}

/// What came of a task: the constraint with its next mask, `None` where nothing can follow.
pub(crate) struct Advanced {
    pub choice: Key,
    pub outcome: Result<Option<Box<Constrained>>, ConstraintError>,
}

/// What the engine's thread and the others share.
struct Rings {
    tasks: ArrayQueue<Task>,
    results: ArrayQueue<Advanced>,
    threads: [OnceLock<Thread>; MAX_CONSTRAINT_THREADS],
    /// A bit for each thread that sleeps, or is about to.
    asleep: AtomicU32,
    is_over: AtomicBool,
}

pub(crate) struct ConstraintThreads {
    rings: Arc<Rings>,
    /// Tasks that found the ring full: many choices ended while theirs waited for threads that are stuck.
    held: VecDeque<Task>,
    started: usize,
}

impl ConstraintThreads {
    /// For so many choices that run at once; more are right too, if slower. Starts no thread yet.
    pub fn new(choices: usize) -> ConstraintThreads {
        let room = choices.max(1) + MAX_CONSTRAINT_THREADS;
        ConstraintThreads {
            rings: Arc::new(Rings {
                tasks: ArrayQueue::new(room),
                results: ArrayQueue::new(room),
                threads: [const { OnceLock::new() }; MAX_CONSTRAINT_THREADS],
                asleep: AtomicU32::new(0),
                is_over: AtomicBool::new(false),
            }),
            held: VecDeque::new(),
            started: 0,
        }
    }

    pub fn advance(&mut self, choice: Key, constrained: Box<Constrained>, token: Option<u32>) {
        while self.started < FIRST_THREADS {
            self.start_thread();
        }
        self.held.push_back(Task {
            choice,
            constrained,
            token,
        });
        self.hand_out();
    }

    /// A thread is stuck: another takes its place, while there may be more.
    pub fn replace_one(&mut self) {
        if self.started < MAX_CONSTRAINT_THREADS {
            self.start_thread();
        }
    }

    pub fn next_result(&mut self) -> Option<Advanced> {
        self.hand_out();
        self.rings.results.pop()
    }

    pub fn wait_for_result(&mut self, at_most: Duration) -> Option<Advanced> {
        let until = Instant::now() + at_most;
        loop {
            if let Some(advanced) = self.next_result() {
                return Some(advanced);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // Who puts a result into the ring wakes us afterwards; a wake that came before makes this return at once.
            std::thread::park_timeout(left);
        }
    }

    /// Moves tasks into the ring while there is room, and wakes a thread for each.
    fn hand_out(&mut self) {
        while let Some(task) = self.held.pop_front() {
            if let Err(task) = self.rings.tasks.push(task) {
                self.held.push_front(task);
                return;
            }
            self.rings.wake_one();
        }
    }

    fn start_thread(&mut self) {
        let (rings, engine) = (self.rings.clone(), std::thread::current());
        let number = self.started;
        let thread = std::thread::Builder::new().name("mettle-constraint".to_owned());
        let work = move || {
            // Before its bit is ever set: who sees the bit finds the handle.
            let _ = rings.threads[number].set(std::thread::current());
            rings.work(number, &engine);
        };
        thread.spawn(work).expect("the system refused a thread");
        self.started += 1;
    }
}

impl Drop for ConstraintThreads {
    fn drop(&mut self) {
        self.rings.is_over.store(true, SeqCst);
        let threads = self.rings.threads.iter().filter_map(OnceLock::get);
        threads.for_each(Thread::unpark);
    }
}

impl Rings {
    /// What thread `number` does until the engine is gone.
    fn work(&self, number: usize, engine: &Thread) {
        let bit = 1 << number;
        while !self.is_over.load(SeqCst) {
            if let Some(task) = self.tasks.pop() {
                // Two tasks may have woken the same thread; the second must not wait for the first.
                if !self.tasks.is_empty() {
                    self.wake_one();
                }
                self.give(run(task), engine);
                continue;
            }
            self.asleep.fetch_or(bit, SeqCst);
            fence(SeqCst);
            // Whoever wakes us clears the bit; a task or an end that came before it was set needs no waking.
            if self.tasks.is_empty() && !self.is_over.load(SeqCst) {
                std::thread::park();
            }
            self.asleep.fetch_and(!bit, SeqCst);
            fence(SeqCst);
        }
    }

    /// After a task was put into the ring: wakes one thread that sleeps.
    fn wake_one(&self) {
        // Against the fences in `work`: either we see the sleeper's bit, or it sees the task.
        fence(SeqCst);
        loop {
            let asleep = self.asleep.load(SeqCst);
            if asleep == 0 {
                return;
            }
            let bit = 1 << asleep.trailing_zeros();
            // Another may have woken that one meanwhile.
            if self.asleep.fetch_and(!bit, SeqCst) & bit != 0 {
                let thread = self.threads[asleep.trailing_zeros() as usize].get();
                thread.expect("set before the bit").unpark();
                return;
            }
        }
    }

    fn give(&self, mut advanced: Advanced, engine: &Thread) {
        // The ring has room unless the engine is in a long step with more constraints than choices may run.
        while let Err(refused) = self.results.push(advanced) {
            if self.is_over.load(SeqCst) {
                return;
            }
            advanced = refused;
            std::thread::sleep(Duration::from_micros(100));
        }
        engine.unpark();
    }
}

fn run(task: Task) -> Advanced {
    let Task {
        choice,
        mut constrained,
        token,
    } = task;
    let advanced = catch_unwind(AssertUnwindSafe(|| {
        let goes_on = constrained.advance(token)?;
        Ok(goes_on.then_some(constrained))
    }));
    let panicked = |_| Err(ConstraintError("the constraint panicked".to_owned()));
    Advanced {
        choice,
        outcome: advanced.unwrap_or_else(panicked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Allows the tokens from the last one on, once the gate is open.
    #[derive(Debug)]
    struct FromLast(u32, Arc<AtomicBool>);

    impl TokenConstraint for FromLast {
        fn mask(&mut self, out: &mut TokenMask) -> Result<(), ConstraintError> {
            while !self.1.load(SeqCst) {
                std::thread::sleep(Duration::from_micros(50));
            }
            (self.0..40).for_each(|id| out.allow(id));
            Ok(())
        }

        fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
            self.0 = token;
            Ok(())
        }

        fn is_finished(&self) -> bool {
            false
        }

        fn fork(&self) -> Box<dyn TokenConstraint> {
            Box::new(FromLast(self.0, self.1.clone()))
        }
    }

    fn key(arrival: u64) -> Key {
        Key {
            priority: 0,
            arrival,
            choice: 1,
        }
    }

    fn behind(gate: &Arc<AtomicBool>) -> Box<Constrained> {
        Constrained::new(Box::new(FromLast(0, gate.clone())), 40)
    }

    fn constrained() -> Box<Constrained> {
        behind(&Arc::new(AtomicBool::new(true)))
    }

    #[test]
    fn threads_start_with_the_first_constraint_and_are_bounded() {
        let mut threads = ConstraintThreads::new(1);
        assert_eq!(threads.started, 0);
        threads.advance(key(7), constrained(), None);
        assert_eq!(threads.started, FIRST_THREADS);
        let advanced = threads.wait_for_result(LONG).unwrap();
        assert_eq!(advanced.choice, key(7));
        assert!(advanced.outcome.unwrap().unwrap().mask.is_allowed(39));
        assert!(threads.next_result().is_none());
        for started in FIRST_THREADS + 1..=MAX_CONSTRAINT_THREADS {
            threads.replace_one();
            assert_eq!(threads.started, started);
        }
        threads.replace_one();
        assert_eq!(threads.started, MAX_CONSTRAINT_THREADS);
    }

    #[test]
    fn every_task_comes_back_once_however_many_there_are() {
        // One choice's rings, many choices' tasks: the rest is held. Without naps the threads fall asleep and are woken
        // thousands of times.
        for (choices, tasks, rounds) in [(1, 100, 20), (4, 4, 3000), (1, 1, 3000)] {
            let mut threads = ConstraintThreads::new(choices);
            for round in 0..rounds {
                for task in 0..tasks {
                    let token = Some((task + round) as u32 % 40);
                    threads.advance(key(task), constrained(), token);
                }
                let mut seen = vec![false; tasks as usize];
                for _ in 0..tasks {
                    let advanced = threads.wait_for_result(LONG).expect("none is lost");
                    let task = advanced.choice.arrival;
                    assert!(!std::mem::replace(&mut seen[task as usize], true));
                    let mask = advanced.outcome.unwrap().unwrap().mask;
                    let first = (task + round) as u32 % 40;
                    assert!(mask.is_allowed(first));
                    assert!(first == 0 || !mask.is_allowed(first - 1));
                }
                assert!(threads.next_result().is_none());
            }
        }
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over() {
        let mut threads = ConstraintThreads::new(1);
        let gate = Arc::new(AtomicBool::new(false));
        threads.advance(key(1), behind(&gate), None);
        assert!(threads.wait_for_result(Duration::from_millis(5)).is_none());
        gate.store(true, SeqCst);
        assert!(threads.wait_for_result(LONG).is_some());
    }

    #[test]
    fn a_slow_constraint_does_not_hold_up_the_next() {
        let mut threads = ConstraintThreads::new(2);
        for round in 0..200 {
            let gate = Arc::new(AtomicBool::new(false));
            // Both at once, so that a thread that was about to sleep may be woken for both.
            threads.advance(key(0), behind(&gate), None);
            threads.advance(key(1), constrained(), None);
            let first = threads.wait_for_result(LONG).unwrap();
            assert_eq!(first.choice, key(1), "round {round}");
            gate.store(true, SeqCst);
            assert_eq!(threads.wait_for_result(LONG).unwrap().choice, key(0));
            // The threads are caught at another place each time.
            (0..round % 50 * 100).for_each(|_| std::hint::spin_loop());
        }
    }

    #[test]
    fn threads_end_with_the_engine() {
        let mut threads = ConstraintThreads::new(1);
        for task in 0..50 {
            threads.advance(key(task), constrained(), None);
        }
        let rings = Arc::downgrade(&threads.rings);
        drop(threads);
        let until = Instant::now() + LONG;
        while rings.strong_count() > 0 {
            assert!(Instant::now() < until, "a thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
