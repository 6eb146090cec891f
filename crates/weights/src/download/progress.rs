//! Owns what a download tells its caller, and what the caller tells it.

use crate::error::{Result, WeightsError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub trait Progress {
    /// A new step starts; `total` is in bytes where it is known.
    fn begin(&mut self, what: &str, total: Option<u64>);
    /// `done` bytes of the step are there. It falls when a transfer has to start over.
    fn advance(&mut self, done: u64);
    fn finish(&mut self);
}

/// Says nothing.
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&mut self, _what: &str, _total: Option<u64>) {}
    fn advance(&mut self, _done: u64) {}
    fn finish(&mut self) {}
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Where the model hub is, without a slash at the end.
    pub hub_endpoint: String,
    /// Sent to the hub for models that need an account.
    pub hub_token: Option<String>,
    /// Set by the caller to stop; whatever is under way ends with `WeightsError::Cancelled`.
    pub cancel: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hub_endpoint: "https://huggingface.co".to_owned(),
            hub_token: None,
            cancel: Arc::default(),
        }
    }
}

impl Options {
    pub(super) fn check_cancel(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(WeightsError::Cancelled);
        }
        Ok(())
    }
}
