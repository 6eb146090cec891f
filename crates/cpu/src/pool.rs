//! Owns the worker threads. A whole step runs on all of them at once; inside it they meet at barriers.
//! Waiting spins briefly, because a step has hundreds of short ops, and then sleeps, because cores may be taken by others.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Roughly 20 microseconds of spinning: several times the longest imbalance of an op on idle cores.
const SPINS: u32 = 4_000;

/// A meeting point for a fixed number of threads, reusable at once.
pub struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    pub fn new(threads: usize) -> Barrier {
        Barrier {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Returns when all threads have called it. Everything written before is visible to all after.
    pub fn wait(&self) {
        if self.threads == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Relaxed);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.advance();
        } else {
            self.wait_past(generation);
        }
    }

    fn advance(&self) {
        // SeqCst pairs with the sleeper's: either it sees the new generation or we see the sleeper.
        self.generation.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    fn wait_past(&self, generation: usize) {
        for _ in 0..SPINS {
            if self.generation.load(Ordering::Acquire) != generation {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock();
        while self.generation.load(Ordering::SeqCst) == generation {
            guard = match guard {
                Ok(guard) => self.wake.wait(guard),
                // Nothing is protected by the lock itself, so a poisoned one is as good.
                Err(poisoned) => self.wake.wait(poisoned.into_inner()),
            };
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
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
    stop: AtomicBool,
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
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let mut workers = Vec::new();
        for index in 1..threads {
            let shared = shared.clone();
            let worker = std::thread::Builder::new()
                .name(format!("mettle-cpu-{index}"))
                .spawn(move || work(&shared, index))?;
            workers.push(worker);
        }
        Ok(Pool { shared, workers })
    }

    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on every thread with its index and the barrier they meet at, and returns when all are done. A panic in a job that uses the inner
    /// barrier would leave others waiting there: jobs are checked before they start and do not panic.
    pub fn run(&mut self, job: &(dyn Fn(usize, &Barrier) + Sync)) {
        if self.workers.is_empty() {
            job(0, &self.shared.inner);
            return;
        }
        // SAFETY: only the lifetime is erased; the pointer is not used after `finish` below, within `job`'s borrow.
        let erased: Job = Job(unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, &Barrier) + Sync + '_),
                *const (dyn Fn(usize, &Barrier) + Sync),
            >(job)
        });
        // SAFETY: the workers wait at `start`; `&mut self` keeps other callers out.
        unsafe { *self.shared.job.get() = Some(erased) };
        self.shared.start.wait();
        job(0, &self.shared.inner);
        self.shared.finish.wait();
        assert!(
            !self.shared.panicked.load(Ordering::Relaxed),
            "a worker thread panicked"
        );
    }
}

fn work(shared: &Shared, index: usize) {
    loop {
        shared.start.wait();
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the caller wrote it before `start` and writes it again only after `finish`.
        let job = unsafe { *shared.job.get() };
        if let Some(Job(job)) = job {
            // SAFETY: `run` waits at `finish` before its borrow of the closure ends.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe {
                (*job)(index, &shared.inner)
            }));
            if outcome.is_err() {
                shared.panicked.store(true, Ordering::Relaxed);
            }
        }
        shared.finish.wait();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.start.wait();
        for worker in self.workers.drain(..) {
            // A worker that panicked has already been reported by `run`.
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
