//! Owns the worker threads. A whole step runs on all of them at once; inside it they share the items of its phases.

use crate::phases::Phases;
use crate::waiting::Waiting;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A meeting point for a fixed number of threads, reusable at once.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    waiting: Waiting,
}

impl Barrier {
    fn new(threads: usize) -> Barrier {
        Barrier {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            waiting: Waiting::new(),
        }
    }

    /// Returns when all threads have called it, everything written before visible to all after; false if it was broken
    /// up.
    fn wait(&self) -> bool {
        if self.threads == 1 {
            return true;
        }
        let generation = self.generation.load(Ordering::Relaxed);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::SeqCst);
            self.waiting.wake();
            return true;
        }
        let passed = || self.generation.load(Ordering::SeqCst) != generation;
        self.waiting.until(passed)
    }
}

/// A job as the workers see it: a borrowed closure whose life `run` guarantees.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize, &Phases) + Sync));

// SAFETY: the closure behind the pointer is Sync, and `run` keeps it alive until every worker has returned from it.
unsafe impl Send for Job {}

struct Shared {
    /// Written by the caller of `run` before `start`, read by the workers between `start` and `finish`.
    job: UnsafeCell<Option<Job>>,
    start: Barrier,
    finish: Barrier,
    phases: Phases,
    panicked: AtomicBool,
}

// SAFETY: `job` is the only part that is not Sync by itself, and the barriers separate its writer from its readers.
unsafe impl Sync for Shared {}
// SAFETY: as for `Job`.
unsafe impl Send for Shared {}

pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        assert!(threads > 0, "a pool has at least the caller's thread");
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            start: Barrier::new(threads),
            finish: Barrier::new(threads),
            phases: Phases::new(threads),
            panicked: AtomicBool::new(false),
        });
        // From here on dropping the pool ends the workers there are, should one of them not start.
        let mut pool = Pool {
            shared,
            workers: Vec::new(),
        };
        for index in 1..threads {
            let shared = pool.shared.clone();
            let worker = std::thread::Builder::new()
                .name(format!("mettle-cpu-{index}"))
                .spawn(move || work(&shared, index))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on every thread with its index and the phases they share, and returns when all are done. If one panics
    /// the others leave at the end of their phase, and the caller panics when all have.
    pub fn run(&mut self, job: &(dyn Fn(usize, &Phases) + Sync)) {
        // SAFETY: only the lifetime is erased; the pointer is not used after `finish` below, within `job`'s borrow.
        let erased = Job(unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, &Phases) + Sync + '_),
                *const (dyn Fn(usize, &Phases) + Sync),
            >(job)
        });
        // SAFETY: the workers wait at `start`; `&mut self` keeps other callers out.
        unsafe { *self.shared.job.get() = Some(erased) };
        self.shared.start.wait();
        run_share(&self.shared, 0);
        self.shared.finish.wait();
        self.shared.phases.restart();
        if self.shared.panicked.swap(false, Ordering::SeqCst) {
            panic!("a thread of the CPU backend panicked");
        }
    }
}

fn work(shared: &Shared, index: usize) {
    while shared.start.wait() {
        run_share(shared, index);
        shared.finish.wait();
    }
}

/// Runs the job on this thread; a panic ends here, for this thread and for those who wait for it.
fn run_share(shared: &Shared, index: usize) {
    // SAFETY: the caller of `run` wrote it before `start` and writes it again only after `finish`.
    let Some(Job(job)) = (unsafe { *shared.job.get() }) else {
        return;
    };
    // SAFETY: `run` waits at `finish` before its borrow of the closure ends.
    let share = || unsafe { (*job)(index, &shared.phases) };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(share)).is_err() {
        shared.panicked.store(true, Ordering::SeqCst);
        shared.phases.break_up();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.start.waiting.break_up();
        for worker in self.workers.drain(..) {
            // A worker does not panic: `run_share` catches.
            let _ = worker.join();
        }
    }
}

/// The part of `items` that thread `index` of `threads` takes: contiguous, and the same on every call.
pub fn share(items: usize, index: usize, threads: usize) -> std::ops::Range<usize> {
    items * index / threads..items * (index + 1) / threads
}

/// The place in a list, largest first, that an item of a phase stands for, so that all threads' [shares](share) come to about as
/// much: they are dealt to them, there and back.
pub fn dealt(items: usize, item: usize, threads: usize) -> usize {
    let thread = ((item + 1) * threads - 1) / items;
    let first = share(items, thread, threads).start;
    let (turn, turns) = (item - first, items / threads);
    if turn == turns {
        // Not everybody has one more; those before this thread that do have it first.
        return turns * threads + first - thread * turns;
    }
    match turn % 2 {
        0 => turn * threads + thread,
        _ => turn * threads + threads - 1 - thread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn shares_cover_all_items_once() {
        for items in 0..40 {
            for threads in 1..9 {
                let mut next = 0;
                for index in 0..threads {
                    let range = share(items, index, threads);
                    assert_eq!(range.start, next);
                    next = range.end;
                }
                assert_eq!(next, items);
            }
        }
    }

    #[test]
    fn every_place_is_dealt_once() {
        for items in 1..60 {
            for threads in 1..9 {
                let mut places: Vec<usize> = (0..items).map(|i| dealt(items, i, threads)).collect();
                places.sort_unstable();
                assert!(
                    places.into_iter().eq(0..items),
                    "{items} items, {threads} threads"
                );
            }
        }
    }

    #[test]
    fn dealt_shares_weigh_the_same() {
        // 24 items of 24, 23, ... to 1.
        for threads in [2, 3, 4, 6] {
            for thread in 0..threads {
                let items = share(24, thread, threads);
                let weights = items.map(|item| 24 - dealt(24, item, threads));
                assert_eq!(weights.sum::<usize>(), 300 / threads);
            }
        }
    }

    #[test]
    fn jobs_follow_each_other_and_their_phases_too() {
        for threads in [1, 2, 3, 8] {
            let mut pool = Pool::new(threads).unwrap();
            for _ in 0..50 {
                let counters: Vec<AtomicU64> = (0..20).map(|_| AtomicU64::new(0)).collect();
                pool.run(&|index, phases| {
                    let mut walk = phases.walk(index);
                    for counter in &counters {
                        walk.phase(5, |_| {
                            counter.fetch_add(1, Ordering::Relaxed);
                        });
                        assert_eq!(counter.load(Ordering::Relaxed), 5);
                    }
                });
            }
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = Pool::new(3).unwrap();
        for culprit in 0..3 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool.run(&|index, phases| {
                    let mut walk = phases.walk(index);
                    walk.phase(7, |_| {});
                    assert_ne!(index, culprit, "this panic is part of the test");
                    // As many items as threads and one that cannot be done without the culprit.
                    walk.phase(3, |_| {
                        std::thread::sleep(std::time::Duration::from_millis(5))
                    });
                });
            }));
            assert!(outcome.is_err());
            let count = AtomicU64::new(0);
            pool.run(&|index, phases| {
                phases.walk(index).phase(3, |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(count.load(Ordering::Relaxed), 3);
            });
        }
    }

    #[test]
    fn a_panic_inside_an_item_ends_the_step() {
        let mut pool = Pool::new(3).unwrap();
        for culprit in 0..5 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool.run(&|index, phases| {
                    let mut walk = phases.walk(index);
                    walk.phase(5, |item| {
                        assert_ne!(item, culprit, "this panic is part of the test");
                    });
                    walk.phase(5, |_| panic!("nobody gets here"));
                });
            }));
            assert!(outcome.is_err());
        }
    }
}
