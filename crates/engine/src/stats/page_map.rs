//! Owns the picture of the KV pool: every page's state, drawn by the worker when somebody has asked.

use crate::pager::{BlockState, Pager};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct PageMap {
    asked: AtomicBool,
    /// A working engine only ever tries the lock: while somebody reads, the picture stays as it is.
    states: Mutex<Vec<BlockState>>,
}

impl PageMap {
    pub fn new(pages: usize) -> PageMap {
        PageMap {
            asked: AtomicBool::new(false),
            states: Mutex::new(vec![BlockState::Free; pages]),
        }
    }

    /// The last picture, and asks for a new one: who looks every now and then sees the pool as it was when it last
    /// looked, or as it is now if the engine is idle.
    pub fn read(&self) -> Vec<BlockState> {
        let states = self.states.lock().expect("no holder panics").clone();
        self.asked.store(true, Relaxed);
        states
    }

    /// While the engine works: never waits for a reader.
    pub fn draw_if_asked(&self, pager: &Pager) {
        if self.asked.load(Relaxed)
            && let Ok(mut states) = self.states.try_lock()
        {
            self.asked.store(false, Relaxed);
            draw(pager, &mut states);
        }
    }

    /// Before the worker falls asleep: what is drawn now stays true until it wakes.
    pub fn draw_last(&self, pager: &Pager) {
        draw(pager, &mut self.states.lock().expect("no holder panics"));
    }
}

fn draw(pager: &Pager, states: &mut [BlockState]) {
    for (state, now) in states.iter_mut().zip(pager.pool().states()) {
        *state = now;
    }
}
