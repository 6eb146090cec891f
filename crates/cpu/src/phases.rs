//! Owns the order of a step's work: phases of items. Each thread has a share of a phase's items and takes them one by one;
//! who is done with its own takes those of others. A phase starts when all items of the one before are done. No thread is
//! needed for an item that it has not taken, so one that has lost its core holds up the others by one item at the most, and
//! finds its way when it is back.
//!
//! A step has hundreds of phases of a few microseconds, and cores far apart need a quarter of one to see each other's writes.
//! So a thread has two lines of its own, each written without waiting for others as a rule: one that its items are taken from,
//! which others touch only when there is something to take, and one that says what it has done, which others wait for.

use crate::pool::share;
use crate::waiting::Waiting;
use std::ops::Range;
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};

/// A phase's number, then how many items. Processors fetch lines in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

/// Bits for the items: a step of 65,536 sequences by 255 heads.
const ITEM_BITS: u32 = 24;
const PHASE: u64 = 1 << ITEM_BITS;

/// Looks at what others have done before their items are taken, about a microsecond: those who are at work end soon, and to take from
/// them costs both more than is left.
const LOOKS: u32 = 64;

impl Line {
    /// Items of phase `number`: none if it has not begun here, None if it is over.
    #[inline]
    fn items(&self, number: u64) -> Option<usize> {
        let word = self.0.load(Acquire);
        match (word / PHASE).cmp(&number) {
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Equal => Some((word % PHASE) as usize),
            std::cmp::Ordering::Greater => None,
        }
    }
}

struct Share {
    /// How many of its items were taken.
    taken: Line,
    /// How many items this thread has done, others' included. Nobody else writes it.
    done: Line,
}

impl Share {
    /// Takes one of the `count` items of phase `number`: None when all are taken or the phase is over.
    #[inline]
    fn take(&self, number: u64, count: usize) -> Option<usize> {
        let mut word = self.taken.0.load(Relaxed);
        loop {
            let next = match (word / PHASE).cmp(&number) {
                // All phases before are over: nobody else writes here but to begin this one.
                std::cmp::Ordering::Less if count > 0 => number * PHASE + 1,
                std::cmp::Ordering::Equal if (word % PHASE) < count as u64 => word + 1,
                _ => return None,
            };
            match self
                .taken
                .0
                .compare_exchange_weak(word, next, SeqCst, Relaxed)
            {
                Ok(_) => return Some((next % PHASE) as usize - 1),
                Err(now) => word = now,
            }
        }
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
        let line = || Line(AtomicU64::new(0));
        let share = |_| Share {
            taken: line(),
            done: line(),
        };
        Phases {
            shares: (0..threads).map(share).collect(),
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
            share.taken.0.store(0, SeqCst);
            share.done.0.store(0, SeqCst);
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

    /// Whoever is in a later phase has seen that this one is over.
    #[inline]
    fn is_over(&self, number: u64, items: usize) -> bool {
        let mut done = 0;
        for share in &self.shares {
            match share.done.items(number) {
                Some(more) => done += more,
                None => return true,
            }
        }
        done == items
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
        assert!((items as u64) < PHASE, "{items} items of a phase");
        let (phases, number) = (self.phases, self.next);
        self.next += 1;
        let threads = phases.shares.len();
        let own = &phases.shares[self.thread];
        // Others have looked at it: here while the first item is done, instead of behind it.
        ask_to_write(&own.done.0);
        let mut did_first = false;
        let mut done = 0;
        let mut take_all_of = |index: usize| {
            let (share, mine) = (&phases.shares[index], phases.items_of(index, items));
            let mut took = false;
            while let Some(item) = share.take(number, mine.len()) {
                work(mine.start + item);
                did_first |= mine.start + item == 0;
                took = true;
                done += 1;
            }
            if took {
                own.done.0.store(number * PHASE + done, Release);
                // Either this sees who sleeps, or they see what is done.
                fence(SeqCst);
                phases.waiting.wake();
            }
        };
        take_all_of(self.thread);
        for _ in 0..LOOKS {
            if phases.is_over(number, items) {
                return did_first;
            }
            std::hint::spin_loop();
        }
        // One who lost its core has left some.
        for behind in 1..threads {
            take_all_of((self.thread + behind) % threads);
        }
        if !phases.waiting.until(|| phases.is_over(number, items)) {
            std::panic::resume_unwind(Box::new(Broken));
        }
        did_first
    }
}

/// Asks for a line that will be written, without waiting for it.
#[inline(always)]
fn ask_to_write(line: &AtomicU64) {
    // SAFETY: a prefetch changes nothing, and processors that do not have it do nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "prefetchw [{line}]",
            line = in(reg) line,
            options(readonly, nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
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
