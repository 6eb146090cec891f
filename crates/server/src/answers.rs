//! Owns the requests of one HTTP request inside the engine: submits them a few at a time and reads all of them at once.

use crate::app::App;
use crate::error::ApiError;
use mettle_engine::{Answer, AnswerEvent, AnswerOptions, Request};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Prompts of one HTTP request that may be in the engine's queue at a time: one caller must not fill it.
const IN_FLIGHT: usize = 16;

/// One prompt, ready for the engine.
#[derive(Clone, Debug)]
pub struct Job {
    pub request: Request,
    pub options: AnswerOptions,
}

/// Dropping it aborts what is under way.
pub struct Answers {
    app: Arc<App>,
    waiting: VecDeque<(usize, Job)>,
    running: Vec<(usize, Answer)>,
    /// Whose turn it is to be asked first.
    turn: usize,
}

impl Answers {
    /// Submits the first jobs; a full queue refuses at once.
    pub fn start(app: &Arc<App>, jobs: impl IntoIterator<Item = Job>) -> Result<Answers, ApiError> {
        let mut answers = Answers {
            app: app.clone(),
            waiting: jobs.into_iter().enumerate().collect(),
            running: Vec::new(),
            turn: 0,
        };
        answers.submit()?;
        Ok(answers)
    }

    /// The next event of any job, by its number; `None` after the last one's end.
    pub async fn next(&mut self) -> Result<Option<(usize, AnswerEvent, &Answer)>, ApiError> {
        loop {
            self.submit()?;
            if self.running.is_empty() {
                return Ok(None);
            }
            match poll_fn(|context| self.poll(context)).await {
                (slot, None) => {
                    self.running.swap_remove(slot);
                }
                (slot, Some(event)) => {
                    let (number, answer) = &self.running[slot];
                    return Ok(Some((*number, event, answer)));
                }
            }
        }
    }

    fn submit(&mut self) -> Result<(), ApiError> {
        while self.running.len() < IN_FLIGHT
            && let Some((number, job)) = self.waiting.pop_front()
        {
            match self.app.engine.submit(job.request.clone()) {
                Ok(stream) => {
                    let tokenizer = self.app.tokenizer.clone();
                    let answer = Answer::new(stream, tokenizer, job.options);
                    self.running.push((number, answer));
                }
                // One caller with many prompts waits for itself.
                Err(error) if error.is_temporary() && !self.running.is_empty() => {
                    self.waiting.push_front((number, job));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(usize, Option<AnswerEvent>)> {
        let count = self.running.len();
        self.turn = (self.turn + 1) % count;
        for slot in (self.turn..count).chain(0..self.turn) {
            // Nothing is lost with the future: an answer's state changes only when an event has come.
            let next = pin!(self.running[slot].1.next_event_async());
            if let Poll::Ready(event) = next.poll(context) {
                return Poll::Ready((slot, event));
            }
        }
        Poll::Pending
    }
}
