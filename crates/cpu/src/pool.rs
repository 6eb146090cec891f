//! Owns the worker threads. A whole step runs on all of them at once; inside it they meet at barriers.
//! Waiting spins briefly, because a step has hundreds of short ops, and then sleeps, because cores may be taken by others.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// A guess: long enough for ops of microseconds, short enough to let go of a core soon. To be measured with `bench`.
const SPINS: u32 = 4_000;

/// A meeting point for a fixed number of threads, reusable at once.
pub struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    sleepers: AtomicUsize,
    /// One of the threads will not come any more.
    broken: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// What a thread unwinds with when another one panicked.
struct BrokenBarrier;

impl Barrier {
    pub fn new(threads: usize) -> Barrier {
        Barrier {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Returns when all threads have called it. Everything written before is visible to all after. Unwinds if one of
    /// them panicked instead.
    pub fn wait(&self) {
        if !self.try_wait() {
            std::panic::resume_unwind(Box::new(BrokenBarrier));
        }
    }

    /// The same; false if the barrier is broken.
    fn try_wait(&self) -> bool {
        if self.threads == 1 {
            return true;
        }
        let generation = self.generation.load(Ordering::Relaxed);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            // SeqCst pairs with the sleeper's: either it sees the new generation or we see the sleeper.
            self.generation.fetch_add(1, Ordering::SeqCst);
            self.wake_sleepers();
            true
        } else {
            self.wait_past(generation)
        }
    }

    /// Makes all who wait, and all who come, leave with false.
    fn break_up(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Whole again. Nobody may be waiting.
    fn mend(&self) {
        self.arrived.store(0, Ordering::SeqCst);
        self.broken.store(false, Ordering::SeqCst);
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    fn wait_past(&self, generation: usize) -> bool {
        let passed = || self.generation.load(Ordering::SeqCst) != generation;
        let broken = || self.broken.load(Ordering::SeqCst);
        for _ in 0..SPINS {
            if passed() {
                return true;
            }
            if broken() {
                return false;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock();
        while !passed() && !broken() {
            guard = match guard {
                Ok(guard) => self.wake.wait(guard),
                // Nothing is protected by the lock itself, so a poisoned one is as good.
                Err(poisoned) => self.wake.wait(poisoned.into_inner()),
            };
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        passed()
    }
}

/// A job as the workers see it: a borrowed closure whose life `run` guarantees.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize, &Barrier) + Sync));

// SAFETY: the closure behind the pointer is Sync, and `run` keeps it alive until every worker has returned from it.
unsafe impl Send for Job {}

struct Shared {
    /// Written by the caller of `run` before `start`, read by the workers between `start` and `finish`.
    job: UnsafeCell<Option<Job>>,
    start: Barrier,
    finish: Barrier,
    /// For the ops inside a job.
    inner: Barrier,
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
            inner: Barrier::new(threads),
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

    /// Runs `job` on every thread with its index and the barrier they meet at, and returns when all are done. If one
    /// panics the others leave at their next barrier, and the caller panics when all have.
    pub fn run(&mut self, job: &(dyn Fn(usize, &Barrier) + Sync)) {
        // SAFETY: only the lifetime is erased; the pointer is not used after `finish` below, within `job`'s borrow.
        let erased = Job(unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, &Barrier) + Sync + '_),
                *const (dyn Fn(usize, &Barrier) + Sync),
            >(job)
        });
        // SAFETY: the workers wait at `start`; `&mut self` keeps other callers out.
        unsafe { *self.shared.job.get() = Some(erased) };
        self.shared.start.wait();
        run_share(&self.shared, 0);
        self.shared.finish.wait();
        if self.shared.panicked.swap(false, Ordering::SeqCst) {
            self.shared.inner.mend();
            panic!("a thread of the CPU backend panicked");
        }
    }
}

fn work(shared: &Shared, index: usize) {
    while shared.start.try_wait() {
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
    let share = || unsafe { (*job)(index, &shared.inner) };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(share)).is_err() {
        shared.panicked.store(true, Ordering::SeqCst);
        shared.inner.break_up();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.start.break_up();
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
    fn barriers_order_the_phases_of_a_job() {
        for threads in [1, 2, 3, 8] {
            let mut pool = Pool::new(threads).unwrap();
            for _ in 0..50 {
                let counters: Vec<AtomicU64> = (0..20).map(|_| AtomicU64::new(0)).collect();
                pool.run(&|_, barrier| {
                    for counter in &counters {
                        counter.fetch_add(1, Ordering::Relaxed);
                        barrier.wait();
                        assert_eq!(counter.load(Ordering::Relaxed), threads as u64);
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
                pool.run(&|index, barrier| {
                    barrier.wait();
                    assert_ne!(index, culprit, "this panic is part of the test");
                    barrier.wait();
                    barrier.wait();
                });
            }));
            assert!(outcome.is_err());
            let count = AtomicU64::new(0);
            pool.run(&|_, barrier| {
                count.fetch_add(1, Ordering::Relaxed);
                barrier.wait();
                assert_eq!(count.load(Ordering::Relaxed), 3);
            });
        }
    }

    #[test]
    fn a_worker_that_waits_long_sleeps_and_wakes() {
        let mut pool = Pool::new(2).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        pool.run(&|index, barrier| {
            if index == 0 {
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
            barrier.wait();
        });
    }
}
