//! Owns the order of a step's work: phases of items. Whoever has time takes the next item; a phase starts when all items of
//! the one before are done. No thread is needed for an item that it has not taken, so one that has lost its core holds up
//! the others by one item at the most, and finds its way when it is back.

use crate::waiting::Waiting;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub struct Phases {
    /// The number of the phase in the upper half, the items of it that were taken in the lower.
    state: AtomicU64,
    /// Items of the phase that are done.
    done: AtomicUsize,
    waiting: Waiting,
}

/// One thread's way through the phases. All threads name the same phases in the same order.
pub struct Walk<'a> {
    phases: &'a Phases,
    next: u64,
}

/// What a thread unwinds with when another one panicked.
struct Broken;

impl Phases {
    pub fn new() -> Phases {
        Phases {
            state: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            waiting: Waiting::new(),
        }
    }

    pub fn walk(&self) -> Walk<'_> {
        Walk {
            phases: self,
            next: 0,
        }
    }

    /// Back to the first phase. Nobody may be walking.
    pub fn restart(&self) {
        self.state.store(0, Ordering::SeqCst);
        self.done.store(0, Ordering::SeqCst);
        self.waiting.mend();
    }

    /// Makes all who walk leave at the end of their item.
    pub fn break_up(&self) {
        self.waiting.break_up();
    }

    fn number(&self) -> u64 {
        self.state.load(Ordering::SeqCst) >> 32
    }

    /// An item of phase `number`: None when they are all taken or the phase is over.
    fn take(&self, number: u64, items: usize) -> Option<usize> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let item = (state & u32::MAX as u64) as usize;
            if state >> 32 != number || item >= items {
                return None;
            }
            let taken = self.state.compare_exchange_weak(
                state,
                state + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match taken {
                Ok(_) => return Some(item),
                Err(now) => state = now,
            }
        }
    }
}

impl Walk<'_> {
    /// One phase: calls `work` with the items that this thread gets to take, and returns when all items are done,
    /// everything written by them visible. True for the one thread that did the last of them. Unwinds if a thread
    /// panicked.
    #[inline]
    pub fn phase(&mut self, items: usize, mut work: impl FnMut(usize)) -> bool {
        if items == 0 {
            return false;
        }
        assert!(items < u32::MAX as usize, "items are counted in 32 bits");
        let (phases, number) = (self.phases, self.next);
        self.next += 1;
        let mut last = false;
        while let Some(item) = phases.take(number, items) {
            work(item);
            if phases.done.fetch_add(1, Ordering::AcqRel) + 1 == items {
                // Nobody touches the counter until the next phase has a number.
                phases.done.store(0, Ordering::Relaxed);
                phases.state.store((number + 1) << 32, Ordering::SeqCst);
                phases.waiting.wake();
                last = true;
            }
        }
        if !phases.waiting.until(|| phases.number() > number) {
            std::panic::resume_unwind(Box::new(Broken));
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    #[test]
    fn every_item_of_every_phase_is_done_once_and_in_order() {
        for threads in [1, 2, 3, 8] {
            for _ in 0..20 {
                let phases = Phases::new();
                let counts: Vec<Vec<AtomicU32>> = (0..60)
                    .map(|p| (0..p % 7).map(|_| AtomicU32::new(0)).collect())
                    .collect();
                let lasts = AtomicU32::new(0);
                std::thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            let mut walk = phases.walk();
                            for (p, items) in counts.iter().enumerate() {
                                let last = walk.phase(items.len(), |item| {
                                    let before = counts[..p].iter().flatten();
                                    assert!(
                                        before.into_iter().all(|c| c.load(Ordering::Relaxed) == 1)
                                    );
                                    items[item].fetch_add(1, Ordering::Relaxed);
                                });
                                lasts.fetch_add(last as u32, Ordering::Relaxed);
                            }
                        });
                    }
                });
                let done = counts
                    .iter()
                    .flatten()
                    .all(|c| c.load(Ordering::Relaxed) == 1);
                assert!(done, "{threads} threads");
                let not_empty = counts.iter().filter(|items| !items.is_empty()).count();
                assert_eq!(lasts.load(Ordering::Relaxed) as usize, not_empty);
            }
        }
    }

    #[test]
    fn a_thread_that_comes_late_is_not_waited_for() {
        // One after the other on one thread: the first would never return if it waited for the second.
        let phases = Phases::new();
        let mut walk = phases.walk();
        for _ in 0..500 {
            assert!(walk.phase(3, |_| {}));
        }
        let mut late = phases.walk();
        for _ in 0..500 {
            assert!(!late.phase(3, |_| panic!("all was done")));
        }
    }

    #[test]
    fn one_that_waits_long_sleeps_and_wakes() {
        let phases = Phases::new();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut walk = phases.walk();
                    for _ in 0..3 {
                        walk.phase(1, |_| std::thread::sleep(Duration::from_millis(20)));
                    }
                });
            }
        });
    }
}
