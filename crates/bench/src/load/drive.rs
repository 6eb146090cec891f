//! Owns the sending of one run's requests: at their moments, never more at a time than allowed, until all ended or a
//! person had enough.

use super::arrivals::Rate;
use super::dataset::Prompt;
use super::exchange::{RequestOptions, exchange};
use super::metrics::{Sample, Watch};
use super::outcome::Outcome;
use super::server::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

/// How often progress is told and the wish to stop is looked for.
const TICK: Duration = Duration::from_millis(100);

/// What is sent, and how.
#[derive(Clone, Debug)]
pub struct Drive {
    pub options: RequestOptions,
    pub prompts: Vec<Prompt>,
    pub rate: Rate,
    /// Requests under way at a time; `None` sets no limit.
    pub concurrency: Option<usize>,
    pub seed: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    pub total: usize,
    pub ended: usize,
    pub failed: usize,
    pub output_tokens: usize,
    pub seconds: f64,
}

/// What a run brought.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// In the order in which they were sent.
    pub outcomes: Vec<Outcome>,
    /// From the start to the last end, in seconds.
    pub duration: f64,
    /// The server's own numbers over time; empty where it has none.
    pub samples: Vec<Sample>,
    /// Requests that were not sent or not waited for, because somebody stopped the run.
    pub unfinished: usize,
}

/// Sends all prompts. Setting `stop` ends the run early, with what there is.
pub async fn drive(
    server: &Server,
    plan: Drive,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Run {
    let total = plan.prompts.len();
    let arrivals = plan.rate.arrivals(total, plan.seed);
    let permits = plan.concurrency.unwrap_or(Semaphore::MAX_PERMITS);
    let permits = Arc::new(Semaphore::new(permits));
    let shared = Arc::new((server.client.clone(), plan.options));
    let start = Instant::now();
    let watch = Watch::start(server.client.clone(), start);
    let mut arriving = plan.prompts.into_iter().zip(arrivals).peekable();
    let mut under_way = JoinSet::new();
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(total);
    let mut told = Progress {
        total,
        ..Progress::default()
    };
    let mut duration = 0.0;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while outcomes.len() < total && !stop.load(Ordering::Relaxed) {
        let next = arriving.peek().map(|(_, at)| start + *at);
        tokio::select! {
            () = sleep_until(next.unwrap_or(start).into()), if next.is_some() => {
                let (prompt, _) = arriving.next().expect("it was just looked at");
                let (shared, permits) = (shared.clone(), permits.clone());
                under_way.spawn(async move {
                    let _permit = permits.acquire_owned().await.expect("it is never closed");
                    let (client, options) = &*shared;
                    exchange(client, options, &prompt, start).await
                });
            }
            Some(ended) = under_way.join_next() => {
                let outcome: Outcome = ended.expect("a request does not panic");
                duration = start.elapsed().as_secs_f64();
                told.ended += 1;
                told.failed += usize::from(!outcome.is_success());
                told.output_tokens += outcome.output_tokens;
                outcomes.push(outcome);
            }
            _ = ticks.tick() => {}
        }
        told.seconds = start.elapsed().as_secs_f64();
        progress(&told);
    }
    under_way.abort_all();
    if outcomes.len() < total {
        duration = start.elapsed().as_secs_f64();
    }
    outcomes.sort_by(|a, b| a.sent.total_cmp(&b.sent));
    Run {
        unfinished: total - outcomes.len(),
        outcomes,
        duration,
        samples: watch.stop(),
    }
}
