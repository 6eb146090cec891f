//! Owns the way of a request's events from the worker to their reader.
//!
//! A request has a bound on its events, so each gets a word of its own, and where log-probabilities were asked for a few
//! more, all made with the request: the worker neither allocates, locks nor waits when it writes a token. The words are
//! zero pages of the system until they are written. What comes once (the prompt's scores, ends) travels in a queue
//! beside them. The reader is woken by the bell's thread.

use crate::bell::{Bell, Link};
use crate::error::EngineError;
use crate::event::{Event, TokenLogprobs};
use crate::sampler::Scores;
use atomic_waker::AtomicWaker;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A word that was written; the bits below say what.
const WRITTEN: u64 = 1 << 63;
const IS_STOP: u64 = 1 << 62;
/// The event is the next one of the queue.
const QUEUED: u64 = 1 << 61;
/// The token has log-probabilities, in the event's score words.
const IS_SCORED: u64 = 1 << 60;
/// Alternatives of a scored token take the bits from here to `IS_SCORED`, choices those from `CHOICE` to here, the
/// token's id those below.
const ALTERNATIVES: u32 = 55;
const ALTERNATIVES_MASK: u64 = (IS_SCORED >> ALTERNATIVES) - 1;
const CHOICE: u32 = 32;
const CHOICE_MASK: u64 = (1 << (ALTERNATIVES - CHOICE)) - 1;

#[derive(Debug)]
pub(crate) struct Shared {
    words: Box<[AtomicU64]>,
    /// `score_words` for each event: the token's log-probability and rank, then the alternatives with theirs.
    scores: Box<[AtomicU64]>,
    score_words: usize,
    /// Words given to events so far.
    used: AtomicUsize,
    has_reader: AtomicBool,
    has_writer: AtomicBool,
    reader: AtomicWaker,
    /// The bell's.
    pub(crate) link: Link,
}

impl Shared {
    /// Takes the reader's runtime's time and locks: not for the worker.
    pub(crate) fn wake_reader(&self) {
        self.reader.wake();
    }
}

/// A tape for `capacity` events at the most, with room for so many alternatives of each token, if any.
pub(crate) fn tape(
    capacity: usize,
    alternatives: Option<usize>,
    bell: &Arc<Bell>,
) -> Result<(TapeWriter, TapeReader), EngineError> {
    let score_words = alternatives.map_or(0, |count| 1 + count);
    let scores = capacity.saturating_mul(score_words);
    let words = |count| {
        bytemuck::try_zeroed_slice_box::<AtomicU64>(count).map_err(|()| EngineError::NoRoom {
            bytes: capacity.saturating_add(scores).saturating_mul(8),
        })
    };
    let shared = Arc::new(Shared {
        words: words(capacity)?,
        scores: words(scores)?,
        score_words,
        used: AtomicUsize::new(0),
        has_reader: AtomicBool::new(true),
        has_writer: AtomicBool::new(true),
        reader: AtomicWaker::new(),
        link: Link::default(),
    });
    let (sender, receiver) = unbounded_channel();
    let writer = TapeWriter {
        shared: shared.clone(),
        queue: sender,
        bell: bell.clone(),
    };
    let reader = TapeReader {
        shared,
        queue: receiver,
        read: 0,
    };
    Ok((writer, reader))
}

/// A number and the bits of another, in one word.
fn pair(number: u32, value: f32) -> u64 {
    u64::from(number) << 32 | u64::from(value.to_bits())
}

fn unpair(word: u64) -> (u32, f32) {
    ((word >> 32) as u32, f32::from_bits(word as u32))
}

#[derive(Debug)]
pub(crate) struct TapeWriter {
    shared: Arc<Shared>,
    queue: UnboundedSender<Event>,
    bell: Arc<Bell>,
}

impl TapeWriter {
    /// The reader is gone.
    pub fn is_closed(&self) -> bool {
        !self.shared.has_reader.load(Relaxed)
    }

    /// A token; nobody is told where the reader is gone.
    pub fn write_token(&self, choice: usize, id: u32, scores: Option<Scores>, is_stop: bool) {
        assert!(choice as u64 <= CHOICE_MASK, "choice {choice}");
        let index = self.shared.used.fetch_add(1, Relaxed);
        let mut word = WRITTEN | (choice as u64) << CHOICE | u64::from(id);
        if is_stop {
            word |= IS_STOP;
        }
        if let Some(scores) = scores {
            let start = index * self.shared.score_words;
            let room = &self.shared.scores[start..start + self.shared.score_words];
            let (own, alternatives) = room
                .split_first()
                .expect("log-probabilities were asked for");
            assert!(
                scores.top.len() <= alternatives.len(),
                "no more than were asked for"
            );
            own.store(pair(scores.rank, scores.logprob), Relaxed);
            for (word, (id, logprob)) in alternatives.iter().zip(scores.top) {
                word.store(pair(*id, *logprob), Relaxed);
            }
            word |= IS_SCORED | (scores.top.len() as u64) << ALTERNATIVES;
        }
        self.publish(index, word);
    }

    /// What comes once; the queue may allocate.
    pub fn write(&self, event: Event) {
        let _ = self.queue.send(event);
        let index = self.shared.used.fetch_add(1, Relaxed);
        self.publish(index, WRITTEN | QUEUED);
    }

    fn publish(&self, index: usize, word: u64) {
        // Release: who sees the word finds the scores and the queued event.
        self.shared.words[index].store(word, Release);
        self.bell.ring(&self.shared);
    }
}

impl Drop for TapeWriter {
    fn drop(&mut self) {
        self.shared.has_writer.store(false, Release);
        self.bell.ring(&self.shared);
    }
}

#[derive(Debug)]
pub(crate) struct TapeReader {
    shared: Arc<Shared>,
    queue: UnboundedReceiver<Event>,
    /// Words read so far.
    read: usize,
}

impl TapeReader {
    /// The next event that is there.
    pub fn try_read(&mut self) -> Option<Event> {
        let word = self.shared.words.get(self.read)?.load(Acquire);
        if word == 0 {
            return None;
        }
        let index = self.read;
        self.read += 1;
        if word & QUEUED != 0 {
            let event = self.queue.try_recv();
            return Some(event.expect("queued before its word was written"));
        }
        let id = word as u32;
        let scores = || {
            let count = (word >> ALTERNATIVES & ALTERNATIVES_MASK) as usize;
            let start = index * self.shared.score_words;
            let score = |offset: usize| unpair(self.shared.scores[start + offset].load(Relaxed));
            let (rank, logprob) = score(0);
            TokenLogprobs {
                id,
                logprob,
                rank,
                top: (1..=count).map(score).collect(),
            }
        };
        Some(Event::Token {
            choice: (word >> CHOICE & CHOICE_MASK) as usize,
            id,
            logprobs: (word & IS_SCORED != 0).then(scores),
            is_stop: word & IS_STOP != 0,
        })
    }

    /// The next event; `None` when the writer is gone and all was read.
    pub async fn read(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll(context)).await
    }

    /// The same for a thread of its own.
    pub fn read_blocking(&mut self) -> Option<Event> {
        if let Some(event) = self.try_read() {
            return Some(event);
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match self.poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(event) => return event,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(event) = self.try_read() {
            return Poll::Ready(Some(event));
        }
        // First the waker, then a second look: what is written between the two wakes it.
        self.shared.reader.register(context.waker());
        let has_writer = self.shared.has_writer.load(Acquire);
        match self.try_read() {
            // A writer that was gone before this look had written all it would.
            None if has_writer => Poll::Pending,
            event => Poll::Ready(event),
        }
    }
}

impl Drop for TapeReader {
    fn drop(&mut self) {
        self.shared.has_reader.store(false, Relaxed);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FinishReason, Finished, Timings, Usage};
    use crate::request::MAX_LOGPROBS;

    fn token(choice: usize, id: u32, is_stop: bool) -> Event {
        Event::Token {
            choice,
            id,
            logprobs: None,
            is_stop,
        }
    }

    fn end(choice: usize) -> Event {
        Event::Finished(Finished {
            choice,
            reason: FinishReason::Length,
            usage: Usage::default(),
            timings: Timings::default(),
            pooled: Some(vec![1.0]),
        })
    }

    /// With alternatives that differ from token to token.
    fn alternatives(id: u32, count: usize) -> Vec<(u32, f32)> {
        let logprob = |place: u32| -0.25 * (id % 7 + place) as f32;
        (0..count as u32)
            .map(|place| (id ^ place, logprob(place)))
            .collect()
    }

    fn scored(id: u32, count: usize) -> Event {
        Event::Token {
            choice: 1,
            id,
            logprobs: Some(TokenLogprobs {
                id,
                logprob: -0.5,
                rank: id.wrapping_add(1),
                top: alternatives(id, count),
            }),
            is_stop: false,
        }
    }

    fn write(writer: &TapeWriter, event: &Event) {
        match event {
            Event::Token {
                choice,
                id,
                logprobs,
                is_stop,
            } => {
                let scores = logprobs.as_ref().map(|scored| Scores {
                    logprob: scored.logprob,
                    rank: scored.rank,
                    top: &scored.top,
                });
                writer.write_token(*choice, *id, scores, *is_stop);
            }
            event => writer.write(event.clone()),
        }
    }

    #[test]
    fn events_come_as_they_were_written_and_in_order() {
        let events = [
            token(0, 0, false),
            Event::PromptLogprobs(vec![None]),
            token(CHOICE_MASK as usize, u32::MAX, true),
            scored(u32::MAX, MAX_LOGPROBS),
            scored(0, 0),
            token(3, 1, false),
            // A vocabulary of fewer than were asked for.
            scored(9, 2),
            end(0),
            end(1),
        ];
        let (writer, mut reader) = tape(events.len(), Some(MAX_LOGPROBS), &Bell::start()).unwrap();
        for event in &events {
            write(&writer, event);
        }
        for event in events {
            assert_eq!(reader.read_blocking(), Some(event));
        }
        assert_eq!(reader.try_read(), None);
        drop(writer);
        assert_eq!(reader.read_blocking(), None);
    }

    #[test]
    fn a_tape_that_finds_no_memory_is_an_error() {
        for (capacity, alternatives) in [(usize::MAX, None), (usize::MAX / 8, Some(20))] {
            let error = tape(capacity, alternatives, &Bell::start()).unwrap_err();
            assert!(matches!(error, EngineError::NoRoom { bytes } if bytes > 1 << 60));
        }
    }

    #[test]
    fn what_was_written_before_the_writer_went_is_read() {
        let (writer, mut reader) = tape(5, None, &Bell::start()).unwrap();
        write(&writer, &token(0, 4, false));
        writer.write(end(0));
        drop(writer);
        assert_eq!(reader.read_blocking(), Some(token(0, 4, false)));
        assert_eq!(reader.read_blocking(), Some(end(0)));
        assert_eq!(reader.read_blocking(), None);
    }

    #[test]
    fn a_waiting_reader_misses_nothing() {
        const EVENTS: u32 = 20_000;
        for seed in 0..4 {
            let (writer, mut reader) = tape(EVENTS as usize, Some(3), &Bell::start()).unwrap();
            let thread = std::thread::spawn(move || {
                for id in 0..EVENTS {
                    match (id + seed) % 5 {
                        0 => write(&writer, &scored(id, 3)),
                        1 => std::thread::yield_now(),
                        _ => write(&writer, &token(2, id, false)),
                    }
                }
            });
            let mut read = Vec::new();
            while let Some(event) = reader.read_blocking() {
                let Event::Token {
                    id, ref logprobs, ..
                } = event
                else {
                    panic!("only tokens were written");
                };
                if logprobs.is_some() {
                    assert_eq!(event, scored(id, 3));
                }
                read.push(id);
            }
            thread.join().unwrap();
            let expected: Vec<u32> = (0..EVENTS).filter(|id| (id + seed) % 5 != 1).collect();
            assert!(read == expected, "{} of {}", read.len(), expected.len());
        }
    }

    #[test]
    fn a_writer_knows_that_its_reader_is_gone() {
        let (writer, reader) = tape(2, None, &Bell::start()).unwrap();
        assert!(!writer.is_closed());
        drop(reader);
        assert!(writer.is_closed());
        write(&writer, &token(0, 1, false));
        writer.write(end(0));
    }
}
