//! Owns waiting for other threads: spinning briefly, because a step has hundreds of short phases, then sleeping, because
//! cores may be taken by others.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Long enough for what takes microseconds, short enough to let go of a core soon.
const SPINS: u32 = 4_000;

pub struct Waiting {
    sleepers: AtomicUsize,
    /// What is waited for will not come any more.
    broken: AtomicBool,
    /// Grows with every call to wake up; sleepers sleep on it, without a lock that a thread without a core could hold.
    calls: AtomicU32,
}

impl Waiting {
    pub fn new() -> Waiting {
        Waiting {
            sleepers: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            calls: AtomicU32::new(0),
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
        loop {
            let calls = self.calls.load(Ordering::SeqCst);
            if passed() || broken() {
                break;
            }
            // Returns at once if somebody has called since.
            atomic_wait::wait(&self.calls, calls);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        passed()
    }

    /// Wakes all who sleep.
    pub fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.calls.fetch_add(1, Ordering::SeqCst);
            atomic_wait::wake_all(&self.calls);
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
