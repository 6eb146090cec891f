//! Owns the order of a step's work: phases of items. Each thread has a share of a phase's items and takes them one by one;
//! who is done with its own takes those of others. A phase starts when all items of the one before are done. No thread is
//! needed for an item that it has not taken, so one that has lost its core holds up the others by one item at the most, and
//! finds its way when it is back.
//!
//! A step has hundreds of phases of a few microseconds, and cores far apart need a tenth of one to see each other's writes.
//! So what a thread writes as it goes is a line of its own: the others look at it when they have nothing else to do.

use crate::pool::share;
use crate::waiting::Waiting;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// How far a thread's share is: the phase's number, then how many of its items were taken, then how many are done.
/// Processors fetch lines in pairs.
#[repr(align(128))]
struct Share(AtomicU64);

/// Bits for the items taken, and for those done: a step of 65,536 sequences by 255 heads. 65,535 phases are left.
const ITEM_BITS: u32 = 24;
const TAKEN: u64 = 1 << ITEM_BITS;
const DONE: u64 = 1;
const PHASE: u64 = 1 << (2 * ITEM_BITS);

fn taken(word: u64) -> usize {
    ((word % PHASE) / TAKEN) as usize
}

fn done(word: u64) -> usize {
    (word % TAKEN) as usize
}

impl Share {
    /// Takes one of the `count` items of phase `number`, and says with the same write that `done` others are done: None
    /// when all are taken or the phase is over.
    #[inline]
    fn take(&self, number: u64, count: usize, done: u64) -> Option<usize> {
        let mut word = self.0.load(SeqCst);
        loop {
            let next = match (word / PHASE).cmp(&number) {
                // All phases before are over: nobody else writes here but to begin this one.
                std::cmp::Ordering::Less if count > 0 => number * PHASE + TAKEN,
                std::cmp::Ordering::Equal if taken(word) < count => word + TAKEN + done,
                _ => return None,
            };
            match self.0.compare_exchange_weak(word, next, SeqCst, SeqCst) {
                Ok(_) => return Some(taken(next) - 1),
                Err(now) => word = now,
            }
        }
    }

    fn is_over(&self, number: u64, count: usize) -> bool {
        let word = self.0.load(SeqCst);
        count == 0 || word / PHASE > number || word / PHASE == number && done(word) == count
    }
}

pub struct Phases {
    shares: Box<[Share]>,
    waiting: Waiting,
}

/// One thread's way through the phases. All threads name the same phases in the same order.
pub struct Walk<'a> {
    phases: &'a Phases,
    thread: usize,
    next: u64,
}

/// What a thread unwinds with when another one panicked.
struct Broken;

impl Phases {
    pub fn new(threads: usize) -> Phases {
        Phases {
            shares: (0..threads).map(|_| Share(AtomicU64::new(0))).collect(),
            waiting: Waiting::new(),
        }
    }

    pub fn walk(&self, thread: usize) -> Walk<'_> {
        Walk {
            phases: self,
            thread,
            next: 1,
        }
    }

    /// Back to the first phase. Nobody may be walking.
    pub fn restart(&self) {
        for share in &self.shares {
            share.0.store(0, SeqCst);
        }
        self.waiting.mend();
    }

    /// Makes all who walk leave at the end of their item.
    pub fn break_up(&self) {
        self.waiting.break_up();
    }

    /// The items of thread `index`.
    fn items_of(&self, index: usize, items: usize) -> Range<usize> {
        share(items, index, self.shares.len())
    }

    fn is_over(&self, number: u64, items: usize) -> bool {
        let mut shares = self.shares.iter().enumerate();
        shares.all(|(index, share)| share.is_over(number, self.items_of(index, items).len()))
    }
}

impl Walk<'_> {
    /// One phase: calls `work` with the items that this thread gets to take, and returns when all items are done,
    /// everything written by them visible. True for the one thread that did the first of them. Unwinds if a thread
    /// panicked.
    #[inline]
    pub fn phase(&mut self, items: usize, mut work: impl FnMut(usize)) -> bool {
        if items == 0 {
            return false;
        }
        assert!((items as u64) < TAKEN, "{items} items of a phase");
        let (phases, number) = (self.phases, self.next);
        self.next += 1;
        let threads = phases.shares.len();
        let mut did_first = false;
        // Its own first, then those of the threads behind it.
        for index in (self.thread..threads).chain(0..self.thread) {
            let (share, mine) = (&phases.shares[index], phases.items_of(index, items));
            let mut finished = 0;
            while let Some(item) = share.take(number, mine.len(), finished) {
                work(mine.start + item);
                did_first |= mine.start + item == 0;
                finished = DONE;
            }
            if finished > 0 && done(share.0.fetch_add(DONE, SeqCst)) + 1 == mine.len() {
                phases.waiting.wake();
            }
        }
        if !phases.waiting.until(|| phases.is_over(number, items)) {
            std::panic::resume_unwind(Box::new(Broken));
        }
        did_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn every_item_of_every_phase_is_done_once_and_in_order() {
        for threads in [1, 2, 3, 8] {
            for _ in 0..20 {
                let phases = Phases::new(threads);
                let counts: Vec<Vec<AtomicU32>> = (0..60)
                    .map(|p| (0..p % 7).map(|_| AtomicU32::new(0)).collect())
                    .collect();
                let firsts = AtomicU32::new(0);
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        let (phases, counts, firsts) = (&phases, &counts, &firsts);
                        scope.spawn(move || {
                            let mut walk = phases.walk(thread);
                            for (p, items) in counts.iter().enumerate() {
                                let first = walk.phase(items.len(), |item| {
                                    let before = counts[..p].iter().flatten();
                                    assert!(
                                        before.into_iter().all(|c| c.load(Ordering::Relaxed) == 1)
                                    );
                                    items[item].fetch_add(1, Ordering::Relaxed);
                                });
                                firsts.fetch_add(first as u32, Ordering::Relaxed);
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
                assert_eq!(firsts.load(Ordering::Relaxed) as usize, not_empty);
            }
        }
    }

    #[test]
    fn a_thread_that_comes_late_is_not_waited_for() {
        // One after the other on one thread: the first would never return if it waited for the second.
        for items in [1, 2, 3, 40] {
            let phases = Phases::new(3);
            let mut walk = phases.walk(1);
            for _ in 0..500 {
                assert!(walk.phase(items, |_| {}));
            }
            for thread in [0, 2] {
                let mut late = phases.walk(thread);
                for _ in 0..500 {
                    assert!(!late.phase(items, |_| panic!("all was done")));
                }
            }
        }
    }

    #[test]
    fn one_that_waits_long_sleeps_and_wakes() {
        let phases = &Phases::new(3);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut walk = phases.walk(thread);
                    for _ in 0..3 {
                        walk.phase(1, |_| std::thread::sleep(Duration::from_millis(20)));
                    }
                });
            }
        });
    }
}
