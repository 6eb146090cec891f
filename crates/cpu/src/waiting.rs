//! Owns waiting for other threads: spinning briefly, because a step has hundreds of short phases, then sleeping, because
//! cores may be taken by others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// Long enough for what takes microseconds, short enough to let go of a core soon.
const SPINS: u32 = 4_000;

pub struct Waiting {
    sleepers: AtomicUsize,
    /// What is waited for will not come any more.
    broken: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Waiting {
    pub fn new() -> Waiting {
        Waiting {
            sleepers: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Waits until `passed`, which reads with SeqCst what is written with SeqCst before `wake`. False if broken up.
    pub fn until(&self, passed: impl Fn() -> bool) -> bool {
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
        // SeqCst pairs with the waker's: either it sees this sleeper or we see what it wrote.
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

    /// Wakes all who sleep.
    pub fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    /// Makes all who wait, and all who come, leave with false.
    pub fn break_up(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whole again. Nobody may be waiting.
    pub fn mend(&self) {
        self.broken.store(false, Ordering::SeqCst);
    }
}
