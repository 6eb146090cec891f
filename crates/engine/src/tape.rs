//! Owns the way of a request's events from the worker to their reader.
//!
//! A request has a bound on its events, so each gets a word of its own, all made with the request: the worker neither
//! allocates, locks nor waits when it writes one. The words are zero pages of the system until they are written. What does
//! not fit a word (ends, log-probabilities) travels in a queue beside them.

use crate::event::Event;
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
/// Choices take the bits from here to `QUEUED`, the token's id those below.
const CHOICE: u32 = 32;
const CHOICES: u64 = QUEUED >> CHOICE;

#[derive(Debug)]
struct Shared {
    words: Box<[AtomicU64]>,
    /// Words given to events so far.
    used: AtomicUsize,
    has_reader: AtomicBool,
    has_writer: AtomicBool,
    reader: AtomicWaker,
}

/// A tape for `capacity` events at the most.
pub(crate) fn tape(capacity: usize) -> (TapeWriter, TapeReader) {
    let shared = Arc::new(Shared {
        words: bytemuck::zeroed_slice_box(capacity),
        used: AtomicUsize::new(0),
        has_reader: AtomicBool::new(true),
        has_writer: AtomicBool::new(true),
        reader: AtomicWaker::new(),
    });
    let (sender, receiver) = unbounded_channel();
    let writer = TapeWriter {
        shared: shared.clone(),
        queue: sender,
    };
    let reader = TapeReader {
        shared,
        queue: receiver,
        read: 0,
    };
    (writer, reader)
}

#[derive(Debug)]
pub(crate) struct TapeWriter {
    shared: Arc<Shared>,
    queue: UnboundedSender<Event>,
}

impl TapeWriter {
    /// The reader is gone.
    pub fn is_closed(&self) -> bool {
        !self.shared.has_reader.load(Relaxed)
    }

    /// Nobody is told where the reader is gone.
    pub fn write(&self, event: Event) {
        let word = match event {
            Event::Token {
                choice,
                id,
                logprobs: None,
                is_stop,
            } if (choice as u64) < CHOICES => {
                let stop = if is_stop { IS_STOP } else { 0 };
                WRITTEN | stop | (choice as u64) << CHOICE | u64::from(id)
            }
            event => {
                let _ = self.queue.send(event);
                WRITTEN | QUEUED
            }
        };
        let index = self.shared.used.fetch_add(1, Relaxed);
        // Release: who sees the word finds the queued event.
        self.shared.words[index].store(word, Release);
        self.shared.reader.wake();
    }
}

impl Drop for TapeWriter {
    fn drop(&mut self) {
        self.shared.has_writer.store(false, Release);
        self.shared.reader.wake();
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
        self.read += 1;
        if word & QUEUED != 0 {
            let event = self.queue.try_recv();
            return Some(event.expect("queued before its word was written"));
        }
        Some(Event::Token {
            choice: (word >> CHOICE & (CHOICES - 1)) as usize,
            id: word as u32,
            logprobs: None,
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
    use crate::event::{FinishReason, Finished, Timings, TokenLogprobs, Usage};

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

    fn scored(id: u32) -> Event {
        Event::Token {
            choice: 1,
            id,
            logprobs: Some(TokenLogprobs {
                id,
                logprob: -0.5,
                rank: 1,
                top: vec![(id, -0.5)],
            }),
            is_stop: false,
        }
    }

    #[test]
    fn events_come_as_they_were_written_and_in_order() {
        let largest = (CHOICES - 1) as usize;
        let events = [
            token(0, 0, false),
            Event::PromptLogprobs(vec![None]),
            token(largest, u32::MAX, true),
            // One more than a word has room for.
            token(largest + 1, 7, true),
            scored(9),
            token(3, 1, false),
            end(0),
            end(1),
        ];
        let (writer, mut reader) = tape(events.len());
        for event in &events {
            writer.write(event.clone());
        }
        for event in events {
            assert_eq!(reader.read_blocking(), Some(event));
        }
        assert_eq!(reader.try_read(), None);
        drop(writer);
        assert_eq!(reader.read_blocking(), None);
    }

    #[test]
    fn what_was_written_before_the_writer_went_is_read() {
        let (writer, mut reader) = tape(5);
        writer.write(token(0, 4, false));
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
            let (writer, mut reader) = tape(EVENTS as usize);
            let thread = std::thread::spawn(move || {
                for id in 0..EVENTS {
                    match (id + seed) % 5 {
                        0 => writer.write(scored(id)),
                        1 => std::thread::yield_now(),
                        _ => writer.write(token(2, id, false)),
                    }
                }
            });
            let mut read = Vec::new();
            while let Some(event) = reader.read_blocking() {
                let Event::Token { id, .. } = event else {
                    panic!("only tokens were written");
                };
                read.push(id);
            }
            thread.join().unwrap();
            let expected: Vec<u32> = (0..EVENTS).filter(|id| (id + seed) % 5 != 1).collect();
            assert!(read == expected, "{} of {}", read.len(), expected.len());
        }
    }

    #[test]
    fn a_writer_knows_that_its_reader_is_gone() {
        let (writer, reader) = tape(2);
        assert!(!writer.is_closed());
        drop(reader);
        assert!(writer.is_closed());
        writer.write(token(0, 1, false));
        writer.write(end(0));
    }
}
