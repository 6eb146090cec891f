//! Owns the reading end of a request: its events in order, exactly one of them terminal for each choice, and the way to
//! abort it.

use crate::event::{Event, FinishReason, Finished, Timings, Usage};
use crate::job::AbortFlags;
use crate::tape::TapeReader;
use std::sync::Arc;

/// The events of one request. Dropping it aborts the request.
#[derive(Debug)]
pub struct RequestStream {
    events: TapeReader,
    abort: Arc<AbortFlags>,
    prompt: usize,
    /// An encoder read the prompt: answers continue nothing.
    starts_anew: bool,
    /// Tokens of each choice, and whether it has ended.
    choices: Vec<(usize, bool)>,
}

impl RequestStream {
    pub(crate) fn new(
        events: TapeReader,
        abort: Arc<AbortFlags>,
        prompt: usize,
        starts_anew: bool,
        choices: usize,
    ) -> Self {
        RequestStream {
            events,
            abort,
            prompt,
            starts_anew,
            choices: vec![(0, false); choices],
        }
    }

    /// How many choices the request has.
    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    /// Whether answers are texts of their own, and do not go on where the prompt ends.
    pub fn starts_anew(&self) -> bool {
        self.starts_anew
    }

    /// The next event, waiting for it; `None` after the last choice's terminal one. Not for use inside async code.
    pub fn recv(&mut self) -> Option<Event> {
        let open = self.first_open()?;
        let event = self.events.read_blocking();
        Some(self.note(event, open))
    }

    /// The next event; `None` after the last choice's terminal one.
    pub async fn recv_async(&mut self) -> Option<Event> {
        let open = self.first_open()?;
        let event = self.events.read().await;
        Some(self.note(event, open))
    }

    /// Asks the engine to end the request. Events already made still come, then `Finished`.
    pub fn abort(&self) {
        self.abort.abort_all();
    }

    /// Asks the engine to end one choice; the others go on.
    pub fn abort_choice(&self, choice: usize) {
        self.abort.abort(choice);
    }

    fn first_open(&self) -> Option<usize> {
        self.choices.iter().position(|(_, ended)| !ended)
    }

    /// In a stream cut off by a dying worker every choice still ends in a terminal event.
    fn note(&mut self, event: Option<Event>, open: usize) -> Event {
        let event = event.unwrap_or_else(|| {
            let usage = Usage {
                prompt: self.prompt,
                completion: self.choices[open].0,
                cached: 0,
            };
            Event::Finished(Finished {
                choice: open,
                reason: FinishReason::Error("the engine stopped".to_owned()),
                usage,
                timings: Timings::default(),
                pooled: None,
            })
        });
        match &event {
            Event::Finished(end) => self.choices[end.choice].1 = true,
            Event::Token { choice, .. } => self.choices[*choice].0 += 1,
            Event::PromptLogprobs(_) => {}
        }
        event
    }
}
