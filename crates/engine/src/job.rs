//! Owns one accepted request: what all its choices share.

use crate::event::{Event, Finished};
use crate::request::Request;
use crate::sampler::Scores;
use crate::tape::TapeWriter;
use crate::token_mask::TokenMask;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// How the reader of a stream asks for its end.
#[derive(Debug)]
pub(crate) struct AbortFlags {
    all: AtomicBool,
    choices: Box<[AtomicBool]>,
}

impl AbortFlags {
    pub fn new(choices: usize) -> AbortFlags {
        AbortFlags {
            all: AtomicBool::new(false),
            choices: (0..choices).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    pub fn abort_all(&self) {
        self.all.store(true, Relaxed);
    }

    pub fn abort(&self, choice: usize) {
        self.choices[choice].store(true, Relaxed);
    }

    pub fn is_set(&self, choice: usize) -> bool {
        self.all.load(Relaxed) || self.choices[choice].load(Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Job {
    pub request: Request,
    pub seed: u64,
    /// An encoder reads the prompt; the decoder starts from this.
    pub decoder_start: Option<u32>,
    /// `allowed_token_ids`.
    pub allowed: Option<TokenMask>,
    pub submitted: Instant,
    abort: Arc<AbortFlags>,
    events: TapeWriter,
    /// Choices that have not ended.
    open: AtomicUsize,
}

impl Job {
    pub fn new(
        request: Request,
        seed: u64,
        decoder_start: Option<u32>,
        vocabulary: usize,
        events: TapeWriter,
        abort: Arc<AbortFlags>,
    ) -> Job {
        Job {
            allowed: request.sampling.allowed(vocabulary),
            open: AtomicUsize::new(request.n),
            submitted: Instant::now(),
            request,
            seed,
            decoder_start,
            abort,
            events,
        }
    }

    /// What the sequence starts with: the prompt, or what stands for one that an encoder reads.
    pub fn given(&self) -> &[u32] {
        match &self.decoder_start {
            Some(start) => std::slice::from_ref(start),
            None => &self.request.prompt,
        }
    }

    /// What an encoder reads.
    pub fn encoder_input(&self) -> &[u32] {
        match self.decoder_start {
            Some(_) => &self.request.prompt,
            None => &[],
        }
    }

    /// Events that a request may send at the most, so that its tape has room for all and the worker never waits for
    /// a reader: tokens, the ends, the prompt's log-probabilities.
    pub fn events_at_most(request: &Request) -> usize {
        let of_choice = request.max_tokens.saturating_add(1);
        request.n.saturating_mul(of_choice).saturating_add(1)
    }

    /// Nobody listens any more, or who does asked to stop.
    pub fn is_aborted(&self, choice: usize) -> bool {
        self.events.is_closed() || self.abort.is_set(choice)
    }

    pub fn is_late(&self, now: Instant) -> bool {
        self.request
            .deadline
            .is_some_and(|deadline| now >= deadline)
    }

    pub fn send_token(&self, choice: usize, id: u32, scores: Option<Scores>, is_stop: bool) {
        self.events.write_token(choice, id, scores, is_stop);
    }

    pub fn send(&self, event: Event) {
        self.events.write(event);
    }

    /// Takes note that one choice is about to end; true for the last one. Before `end`: who reads that event may submit
    /// the next request at once.
    pub fn close_one(&self) -> bool {
        self.open.fetch_sub(1, Relaxed) == 1
    }

    pub fn end(&self, finished: Finished) {
        self.send(Event::Finished(finished));
    }
}
