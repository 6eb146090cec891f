//! Owns the counting of a request on its way to the worker. A worker that has died reads its inbox one last time; what is
//! sent at that moment nobody takes out, and it must not be counted for ever.

use crate::stats::SharedStats;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Something in the inbox. Dropped before it was taken, it is no live request any more.
pub(crate) struct Mail<T> {
    content: Option<T>,
    stats: Arc<SharedStats>,
}

impl<T> Mail<T> {
    /// Of a request that is counted as live already.
    pub fn new(content: T, stats: &Arc<SharedStats>) -> Mail<T> {
        stats.inbox.fetch_add(1, Relaxed);
        Mail {
            content: Some(content),
            stats: stats.clone(),
        }
    }

    /// Hands over what is inside. It is in the inbox until `to` has it: whoever counts misses none.
    pub fn open(mut self, to: impl FnOnce(T)) {
        self.content.take().map(to);
    }
}

impl<T> Drop for Mail<T> {
    fn drop(&mut self) {
        self.stats.inbox.fetch_sub(1, Relaxed);
        if self.content.is_some() {
            self.stats.live.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_out_is_forgotten() {
        let stats = Arc::new(SharedStats::new(1));
        let counts = || (stats.live.load(Relaxed), stats.inbox.load(Relaxed));
        stats.live.store(3, Relaxed);
        let (sender, receiver) = std::sync::mpsc::sync_channel(2);
        for number in 0..3 {
            let sent = sender.try_send(Mail::new(number, &stats));
            // The third finds no room.
            assert_eq!(sent.is_ok(), number < 2);
        }
        assert_eq!(counts(), (2, 2));
        receiver.recv().unwrap().open(|number| {
            assert_eq!((number, counts()), (0, (2, 2)), "counted until it is taken");
        });
        assert_eq!(counts(), (2, 1), "its end is counted elsewhere");
        drop(receiver);
        assert_eq!(counts(), (1, 0), "never read");
    }
}
