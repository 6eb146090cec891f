//! Owns the thread that wakes the readers of tapes. Waking an async reader takes its runtime's lock, so the worker only
//! hangs the tape into a list, which never waits and never allocates, and the bell does the rest.

use crate::tape::Shared;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::thread::Thread;

/// The thread's name, as a debugger shows it.
pub const THREAD: &str = "mettle-bell";

/// A tape's place in the list.
#[derive(Debug, Default)]
pub(crate) struct Link {
    is_hung: AtomicBool,
    next: AtomicPtr<Shared>,
}

/// The tapes whose readers are to be woken, last first. Each is in it once at the most and is owned by it meanwhile.
#[derive(Debug, Default)]
struct Hung {
    head: AtomicPtr<Shared>,
    is_over: AtomicBool,
}

impl Hung {
    /// Whether the list was empty.
    fn push(&self, tape: &Arc<Shared>) -> bool {
        // AcqRel, as in `wake_all`: who finds it hung already has still shown what it wrote before to the bell.
        if tape.link.is_hung.swap(true, AcqRel) {
            return false;
        }
        let tape = Arc::into_raw(tape.clone()).cast_mut();
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: the pointer is of the Arc above, which nobody gives back before the exchange below shows it.
            unsafe { (*tape).link.next.store(head, Relaxed) };
            match self.head.compare_exchange_weak(head, tape, AcqRel, Relaxed) {
                Ok(_) => return head.is_null(),
                Err(now) => head = now,
            }
        }
    }

    /// Empties the list. Whether there was anything in it.
    fn wake_all(&self) -> bool {
        let mut tape = self.head.swap(ptr::null_mut(), AcqRel);
        let found = !tape.is_null();
        while !tape.is_null() {
            // SAFETY: what is in the list came from `Arc::into_raw`, and the exchange above took the list from all others.
            let hung = unsafe { Arc::from_raw(tape) };
            tape = hung.link.next.load(Relaxed);
            // From here on it may be hung again, so its link was read before.
            hung.link.is_hung.swap(false, AcqRel);
            hung.wake_reader();
        }
        found
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.wake_all();
    }
}

/// Rung by writers of tapes. The thread ends when the last of them and the engine's handles are gone.
#[derive(Debug)]
pub(crate) struct Bell {
    hung: Arc<Hung>,
    thread: Thread,
}

impl Bell {
    pub fn start() -> Arc<Bell> {
        let hung = Arc::new(Hung::default());
        let thread = std::thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn({
                let hung = hung.clone();
                move || {
                    // After the word that it is over nothing is hung any more, so one more look finds all.
                    while !hung.is_over.load(Acquire) {
                        if !hung.wake_all() {
                            std::thread::park();
                        }
                    }
                    hung.wake_all();
                }
            })
            .expect("the system refused a thread");
        Arc::new(Bell {
            hung,
            thread: thread.thread().clone(),
        })
    }

    /// Has the tape's reader woken, soon.
    pub fn ring(&self, tape: &Arc<Shared>) {
        // A list that was not empty has rung before, and the bell has not come yet.
        if self.hung.push(tape) {
            self.thread.unpark();
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.hung.is_over.store(true, Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::tape;

    #[test]
    fn no_reader_of_many_sleeps_on() {
        const TAPES: usize = 64;
        const TOKENS: u32 = 500;
        let bell = Bell::start();
        let (writers, readers): (Vec<_>, Vec<_>) = (0..TAPES)
            .map(|_| tape(TOKENS as usize, None, &bell).unwrap())
            .unzip();
        drop(bell);
        std::thread::scope(|scope| {
            for mut reader in readers {
                scope.spawn(move || {
                    let mut count = 0;
                    while reader.read_blocking().is_some() {
                        count += 1;
                    }
                    assert_eq!(count, TOKENS);
                });
            }
            let mut writers = writers.into_iter();
            // Several who ring at once, as the worker and those who drop tapes may.
            for _ in 0..4 {
                let writers: Vec<_> = writers.by_ref().take(TAPES / 4).collect();
                scope.spawn(move || {
                    for id in 0..TOKENS {
                        for writer in &writers {
                            writer.write_token(0, id, None, false);
                        }
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}
