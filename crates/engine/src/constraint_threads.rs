//! Owns the threads that compute masks, so that the engine's thread never does.

use crate::constraint::{ConstraintError, MAX_CONSTRAINT_THREADS, TokenConstraint};
use crate::scheduler::Key;
use crate::token_mask::TokenMask;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

pub(crate) struct ConstraintThreads {
    tasks: Sender<Task>,
    /// Taken in turn by the threads, which hold the lock while they wait for a task, not while they work on one. The
    /// engine's thread never takes it.
    inbox: Arc<Mutex<Receiver<Task>>>,
    results: Receiver<Advanced>,
    outbox: Sender<Advanced>,
    started: usize,
}

impl ConstraintThreads {
    /// Starts no thread yet.
    pub fn new() -> ConstraintThreads {
        let (tasks, inbox) = channel();
        let (outbox, results) = channel();
        ConstraintThreads {
            tasks,
            inbox: Arc::new(Mutex::new(inbox)),
            results,
            outbox,
            started: 0,
        }
    }

    pub fn advance(&mut self, choice: Key, constrained: Box<Constrained>, token: Option<u32>) {
        while self.started < FIRST_THREADS {
            self.start_thread();
        }
        let task = Task {
            choice,
            constrained,
            token,
        };
        // Cannot fail: `inbox` is ours.
        let _ = self.tasks.send(task);
    }

    /// A thread is stuck: another takes its place, while there may be more.
    pub fn replace_one(&mut self) {
        if self.started < MAX_CONSTRAINT_THREADS {
            self.start_thread();
        }
    }

    pub fn next_result(&self) -> Option<Advanced> {
        self.results.try_recv().ok()
    }

    pub fn wait_for_result(&self, at_most: Duration) -> Option<Advanced> {
        self.results.recv_timeout(at_most).ok()
    }

    fn start_thread(&mut self) {
        let (inbox, outbox) = (self.inbox.clone(), self.outbox.clone());
        let work = move || {
            loop {
                let task = inbox.lock().expect("no holder panics").recv();
                // An error means that the engine is gone; so may be the reader of the results.
                let Ok(task) = task else { return };
                if outbox.send(run(task)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("mettle-constraint".to_owned());
        thread.spawn(work).expect("the system refused a thread");
        self.started += 1;
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

    #[derive(Debug)]
    struct Anything;

    impl TokenConstraint for Anything {
        fn mask(&mut self, out: &mut TokenMask) -> Result<(), ConstraintError> {
            out.allow_all();
            Ok(())
        }

        fn accept(&mut self, _: u32) -> Result<(), ConstraintError> {
            Ok(())
        }

        fn is_finished(&self) -> bool {
            false
        }

        fn fork(&self) -> Box<dyn TokenConstraint> {
            Box::new(Anything)
        }
    }

    #[test]
    fn threads_start_with_the_first_constraint_and_are_bounded() {
        let mut threads = ConstraintThreads::new();
        assert_eq!(threads.started, 0);
        let choice = Key {
            priority: 0,
            arrival: 7,
            choice: 1,
        };
        threads.advance(choice, Constrained::new(Box::new(Anything), 40), None);
        assert_eq!(threads.started, FIRST_THREADS);
        let advanced = threads.wait_for_result(Duration::from_secs(20)).unwrap();
        assert_eq!(advanced.choice, choice);
        assert!(advanced.outcome.unwrap().unwrap().mask.is_allowed(39));
        assert!(threads.next_result().is_none());
        for started in FIRST_THREADS + 1..=MAX_CONSTRAINT_THREADS {
            threads.replace_one();
            assert_eq!(threads.started, started);
        }
        threads.replace_one();
        assert_eq!(threads.started, MAX_CONSTRAINT_THREADS);
    }
}
