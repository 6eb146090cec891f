//! Owns the numbers that the worker writes after each step and anybody may read. Reading never makes the worker wait.

mod histogram;
mod page_map;
mod step_history;

pub use histogram::{Histogram, HistogramSnapshot};
pub use step_history::StepRecord;

use crate::event::{FinishReason, Finished};
use crate::pager::Pager;
use crate::request::Request;
use page_map::PageMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use step_history::StepHistory;

/// A snapshot of the engine's numbers; each is exact, together they may be of two neighbouring steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests accepted and not ended.
    pub live: usize,
    /// Choices that take part in steps.
    pub running: usize,
    /// Choices that wait, preempted ones included, and requests on their way to the worker.
    pub waiting: usize,
    pub blocks_total: usize,
    pub blocks_used: usize,
    /// Used by several sequences.
    pub blocks_shared: usize,
    /// Free to take, those with cached content included.
    pub blocks_free: usize,
    /// Free blocks that still hold a prefix.
    pub blocks_cached: usize,
    pub steps: u64,
    pub preemptions: u64,
    /// Prompt tokens of admitted requests, those found in the cache included.
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    /// Prompt tokens looked up in the prefix index when a request first ran, and tokens found.
    pub prefix_queries: u64,
    pub prefix_hits: u64,
    /// Choices that ended, by reason.
    pub ended: Ended,
}

/// Choices that ended, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub stop: u64,
    pub length: u64,
    pub abort: u64,
    pub deadline: u64,
    pub error: u64,
}

/// How long things took and how large they were, since the engine started. Times are in seconds.
#[derive(Clone, Debug)]
pub struct Histograms<H = HistogramSnapshot> {
    pub time_to_first_token: H,
    pub inter_token_latency: H,
    /// Of each choice, the mean time of its tokens after the first.
    pub time_per_output_token: H,
    pub end_to_end: H,
    pub queue_time: H,
    pub prefill_time: H,
    pub decode_time: H,
    /// Prefill and decode together.
    pub inference_time: H,
    pub step_time: H,
    /// Tokens computed in a step.
    pub step_tokens: H,
    pub prompt_tokens: H,
    pub generated_tokens: H,
    pub choices: H,
    pub max_tokens: H,
}

impl Histograms<Histogram> {
    fn new() -> Histograms<Histogram> {
        use histogram::{COUNTS, LATENCIES, REQUEST_TIMES, TOKENS};
        Histograms {
            time_to_first_token: Histogram::new(LATENCIES),
            inter_token_latency: Histogram::new(LATENCIES),
            time_per_output_token: Histogram::new(LATENCIES),
            end_to_end: Histogram::new(REQUEST_TIMES),
            queue_time: Histogram::new(REQUEST_TIMES),
            prefill_time: Histogram::new(REQUEST_TIMES),
            decode_time: Histogram::new(REQUEST_TIMES),
            inference_time: Histogram::new(REQUEST_TIMES),
            step_time: Histogram::new(LATENCIES),
            step_tokens: Histogram::new(TOKENS),
            prompt_tokens: Histogram::new(TOKENS),
            generated_tokens: Histogram::new(TOKENS),
            choices: Histogram::new(COUNTS),
            max_tokens: Histogram::new(TOKENS),
        }
    }

    fn snapshot(&self) -> Histograms {
        Histograms {
            time_to_first_token: self.time_to_first_token.snapshot(),
            inter_token_latency: self.inter_token_latency.snapshot(),
            time_per_output_token: self.time_per_output_token.snapshot(),
            end_to_end: self.end_to_end.snapshot(),
            queue_time: self.queue_time.snapshot(),
            prefill_time: self.prefill_time.snapshot(),
            decode_time: self.decode_time.snapshot(),
            inference_time: self.inference_time.snapshot(),
            step_time: self.step_time.snapshot(),
            step_tokens: self.step_tokens.snapshot(),
            prompt_tokens: self.prompt_tokens.snapshot(),
            generated_tokens: self.generated_tokens.snapshot(),
            choices: self.choices.snapshot(),
            max_tokens: self.max_tokens.snapshot(),
        }
    }
}

/// Written by the worker alone, but for `live` and `inbox`.
#[derive(Debug)]
pub(crate) struct SharedStats {
    /// Requests accepted and not ended.
    pub live: AtomicUsize,
    /// Requests that the worker has not taken yet.
    pub inbox: AtomicUsize,
    pub running: AtomicUsize,
    pub queued: AtomicUsize,
    pub preemptions: AtomicU64,
    pub prompt_tokens: AtomicU64,
    pub generated_tokens: AtomicU64,
    pub prefix_queries: AtomicU64,
    pub prefix_hits: AtomicU64,
    pub histograms: Histograms<Histogram>,
    pub page_map: PageMap,
    blocks_total: usize,
    blocks_free: AtomicUsize,
    blocks_cached: AtomicUsize,
    blocks_shared: AtomicUsize,
    history: StepHistory,
    /// In the order of `Ended`.
    ended: [AtomicU64; 5],
}

impl SharedStats {
    pub fn new(blocks_total: usize) -> SharedStats {
        SharedStats {
            live: AtomicUsize::new(0),
            inbox: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            preemptions: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
            prefix_queries: AtomicU64::new(0),
            prefix_hits: AtomicU64::new(0),
            histograms: Histograms::new(),
            page_map: PageMap::new(blocks_total),
            blocks_total,
            blocks_free: AtomicUsize::new(blocks_total),
            blocks_cached: AtomicUsize::new(0),
            blocks_shared: AtomicUsize::new(0),
            history: StepHistory::new(),
            ended: Default::default(),
        }
    }

    pub fn publish(&self, pager: &Pager) {
        let pool = pager.pool();
        self.blocks_free.store(pool.free(), Relaxed);
        self.blocks_cached.store(pool.cached(), Relaxed);
        self.blocks_shared.store(pool.shared(), Relaxed);
    }

    pub fn count_step(&self, time: Duration, tokens: usize, sequences: usize) {
        self.history.push(time, tokens, sequences);
        self.histograms.step_time.record_time(time);
        self.histograms.step_tokens.record(tokens as f64);
    }

    pub fn count_end(&self, end: &Finished, request: &Request) {
        let reason = match end.reason {
            FinishReason::Stop { .. } => 0,
            FinishReason::Length => 1,
            FinishReason::Abort => 2,
            FinishReason::Deadline => 3,
            FinishReason::Error(_) => 4,
        };
        self.ended[reason].fetch_add(1, Relaxed);
        let (histograms, timings) = (&self.histograms, &end.timings);
        let inference = timings.prefill + timings.decode;
        histograms.end_to_end.record_time(timings.queue + inference);
        histograms.queue_time.record_time(timings.queue);
        if end.usage.completion > 0 {
            histograms.prefill_time.record_time(timings.prefill);
            histograms.decode_time.record_time(timings.decode);
            histograms.inference_time.record_time(inference);
        }
        if end.usage.completion > 1 {
            let gaps = (end.usage.completion - 1) as f64;
            let mean = timings.decode.as_secs_f64() / gaps;
            histograms.time_per_output_token.record(mean);
        }
        let completion = end.usage.completion as f64;
        histograms.generated_tokens.record(completion);
        if end.choice == 0 {
            histograms.prompt_tokens.record(end.usage.prompt as f64);
            histograms.choices.record(request.n as f64);
            histograms.max_tokens.record(request.max_tokens as f64);
        }
    }

    pub fn snapshot(&self) -> Stats {
        // A request goes from the inbox to the queue and runs from there: in this order none is missed.
        let inbox = self.inbox.load(Relaxed);
        let queued = self.queued.load(Relaxed);
        let blocks_free = self.blocks_free.load(Relaxed);
        let ended = |reason: usize| self.ended[reason].load(Relaxed);
        Stats {
            live: self.live.load(Relaxed),
            running: self.running.load(Relaxed),
            waiting: inbox + queued,
            blocks_total: self.blocks_total,
            blocks_used: self.blocks_total - blocks_free,
            blocks_shared: self.blocks_shared.load(Relaxed),
            blocks_free,
            blocks_cached: self.blocks_cached.load(Relaxed),
            steps: self.history.count(),
            preemptions: self.preemptions.load(Relaxed),
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            generated_tokens: self.generated_tokens.load(Relaxed),
            prefix_queries: self.prefix_queries.load(Relaxed),
            prefix_hits: self.prefix_hits.load(Relaxed),
            ended: Ended {
                stop: ended(0),
                length: ended(1),
                abort: ended(2),
                deadline: ended(3),
                error: ended(4),
            },
        }
    }

    pub fn histograms(&self) -> Histograms {
        self.histograms.snapshot()
    }

    pub fn recent_steps(&self) -> Vec<StepRecord> {
        self.history.recent()
    }
}
