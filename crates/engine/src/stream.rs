//! Owns the reading end of a request: its events in order, exactly one of them terminal, and the way to abort it.

use crate::event::{Event, FinishReason, Finished, Timings, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::Receiver;

/// The events of one request. Dropping it aborts the request.
#[derive(Debug)]
pub struct RequestStream {
    events: Receiver<Event>,
    abort: Arc<AtomicBool>,
    prompt: usize,
    completion: usize,
    ended: bool,
}

impl RequestStream {
    pub(crate) fn new(events: Receiver<Event>, abort: Arc<AtomicBool>, prompt: usize) -> Self {
        RequestStream {
            events,
            abort,
            prompt,
            completion: 0,
            ended: false,
        }
    }

    /// The next event, waiting for it; `None` after the terminal one. Not for use inside async code.
    pub fn recv(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.events.blocking_recv();
        Some(self.note(event))
    }

    /// The next event; `None` after the terminal one.
    pub async fn recv_async(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().await;
        Some(self.note(event))
    }

    /// Asks the engine to end the request. Events already made still come, then `Finished`.
    pub fn abort(&self) {
        self.abort.store(true, Ordering::Relaxed);
    }

    /// A stream cut off by a dying worker still ends in a terminal event.
    fn note(&mut self, event: Option<Event>) -> Event {
        let event = event.unwrap_or_else(|| {
            let usage = Usage {
                prompt: self.prompt,
                completion: self.completion,
                cached: 0,
            };
            Event::Finished(Finished {
                reason: FinishReason::Error("the engine stopped".to_owned()),
                usage,
                timings: Timings::default(),
            })
        });
        match event {
            Event::Finished(_) => self.ended = true,
            Event::Token { .. } => self.completion += 1,
            Event::PromptLogprobs(_) => {}
        }
        event
    }
}
