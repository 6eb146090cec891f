//! Owns the threads that templates are compiled and run on: few, with a large stack, and waited for only so long.

use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::TextError;

/// The engine recurses once for each operator in a chain, and a template can nest a list in a list as often as its
/// fuel lasts, which freeing it follows down. Memory for the stack is committed only as it is used.
const STACK: usize = 512 << 20;
/// Renderings take milliseconds, so that more than these at once need not wait long; and no template can keep more
/// processors busy than these.
const THREADS: usize = 4;

/// The threads of one template. A thread cannot be stopped from outside: one that is given up on keeps its place
/// until it ends by itself.
#[derive(Debug)]
pub(crate) struct TemplateThreads {
    places: Arc<Places>,
    /// How long to wait for a free place, and then for the result.
    patience: Duration,
}

#[derive(Debug)]
struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// Free again when dropped, also by a panic.
struct Place(Arc<Places>);

impl TemplateThreads {
    pub(crate) fn new(patience: Duration) -> Self {
        let places = Places {
            free: Mutex::new(THREADS),
            freed: Condvar::new(),
        };
        Self {
            places: Arc::new(places),
            patience,
        }
    }

    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, TextError> + Send + 'static,
    ) -> Result<T, TextError> {
        let place = self.place()?;
        let (sender, receiver) = mpsc::channel();
        let on_thread = move || {
            let _place = place;
            // Nobody receives it where the patience has ended.
            let _ = sender.send(work());
        };
        std::thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(STACK)
            .spawn(on_thread)
            .map_err(|error| TextError::TemplateRender(format!("no thread for it: {error}")))?;
        match receiver.recv_timeout(self.patience) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(TextError::TemplateTime {
                limit: self.patience,
            }),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(TextError::TemplateRender("it panicked".to_owned()))
            }
        }
    }

    fn place(&self) -> Result<Place, TextError> {
        let free = self
            .places
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut free, _) = self
            .places
            .freed
            .wait_timeout_while(free, self.patience, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *free == 0 {
            return Err(TextError::TemplateThreads { threads: THREADS });
        }
        *free -= 1;
        Ok(Place(self.places.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_end_is_given_up_and_keeps_its_place_until_it_does() {
        let threads = TemplateThreads::new(Duration::from_millis(50));
        let mut endings = Vec::new();
        for _ in 0..THREADS {
            let (end, ended) = mpsc::channel::<()>();
            endings.push(end);
            let stuck = threads.run(move || {
                let _ = ended.recv();
                Ok(())
            });
            assert!(matches!(stuck, Err(TextError::TemplateTime { .. })));
        }
        let refused = threads.run(|| Ok(1));
        assert!(matches!(refused, Err(TextError::TemplateThreads { .. })));
        drop(endings);
        // Ending may take the threads longer than this patience.
        let mut attempts = (0..1000).map(|_| threads.run(|| Ok(1)));
        assert!(attempts.any(|result| result.is_ok()));
    }

    #[test]
    fn a_panic_frees_its_place() {
        let threads = TemplateThreads::new(Duration::from_secs(60));
        for _ in 0..2 * THREADS {
            let panicking = threads.run(|| -> Result<(), _> { panic!("as part of the test") });
            assert!(matches!(panicking, Err(TextError::TemplateRender(_))));
        }
        assert_eq!(threads.run(|| Ok(1)).unwrap(), 1);
    }
}
