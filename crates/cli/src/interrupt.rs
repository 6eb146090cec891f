//! Owns Ctrl-C: the first press asks for a stop, the second ends the program at once.

use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a command that was interrupted ends with; its exit code is 130.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// By convention 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;

#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over Ctrl-C; once per program.
    pub fn install() -> anyhow::Result<Interrupt> {
        let pressed = Arc::new(AtomicBool::new(false));
        let flag = pressed.clone();
        let handler = move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(EXIT_CODE.into());
            }
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
        Ok(Interrupt(pressed))
    }

    /// For those who look at the flag themselves.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    pub fn is_pressed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The stop was done; the next press is a first one again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
