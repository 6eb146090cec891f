//! Owns `/engine/state`: what the engine is doing, for a page that looks every moment.

use crate::app::App;
use axum::Json;
use axum::extract::State;
use mettle_engine::HistogramSnapshot;
use mettle_engine::pager::BlockState;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

/// Pages that the map shows at the most; of more it shows a sample.
const MAP_LENGTH: usize = 4096;
const STEPS: usize = 120;

#[derive(Debug, Serialize, ToSchema)]
pub struct EngineState {
    pub model: String,
    pub backend: String,
    pub backend_reason: String,
    pub uptime_seconds: f64,
    pub limits: StateLimits,
    pub requests: StateRequests,
    pub tokens: StateTokens,
    pub latency: StateLatency,
    pub kv: StateCache,
    pub prefix: StatePrefix,
    pub steps: Vec<StateStep>,
    pub memory: StateMemory,
    /// How often each kernel ran.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub kernels: BTreeMap<&'static str, u64>,
    /// Bytes of weights, cache and activations that the steps so far had to move at the least.
    pub bytes_moved: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateLimits {
    pub max_model_len: usize,
    pub max_num_seqs: usize,
    pub max_num_batched_tokens: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateRequests {
    pub running: usize,
    pub waiting: usize,
    pub finished: u64,
    pub preemptions: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateTokens {
    pub prompt_total: u64,
    pub generated_total: u64,
    pub prompt_per_second: f64,
    pub generated_per_second: f64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateLatency {
    pub ttft_ms: Percentiles,
    pub itl_ms: Percentiles,
}

/// `null` before anything was measured.
#[derive(Debug, Serialize, ToSchema)]
pub struct Percentiles {
    pub p50: Option<f64>,
    pub p95: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateCache {
    pub pages: usize,
    pub free: usize,
    pub used: usize,
    pub shared: usize,
    pub cached: usize,
    pub page_tokens: usize,
    /// A character a page: `.` free, `u` used, `s` shared, `c` cached.
    pub map: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StatePrefix {
    pub queries: u64,
    pub hits: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateStep {
    pub ms: f64,
    pub tokens: u32,
    pub sequences: u32,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateMemory {
    pub weights: u64,
    pub kv: u64,
    pub scratch: u64,
}

pub async fn state(State(app): State<Arc<App>>) -> Json<EngineState> {
    let (stats, histograms) = (app.engine.stats(), app.engine.histograms());
    let facts = &app.options.facts;
    let (prompt_rate, generated_rate) =
        app.rates
            .look(Instant::now(), stats.prompt_tokens, stats.generated_tokens);
    let steps = app.engine.recent_steps();
    let ended = &stats.ended;
    Json(EngineState {
        model: app.model_name().to_owned(),
        backend: facts.backend.clone(),
        backend_reason: facts.backend_reason.clone(),
        uptime_seconds: app.start.elapsed().as_secs_f64(),
        limits: StateLimits {
            max_model_len: app.engine.limits().context,
            max_num_seqs: facts.max_num_seqs,
            max_num_batched_tokens: facts.max_num_batched_tokens,
        },
        requests: StateRequests {
            running: stats.running,
            waiting: stats.waiting,
            finished: ended.stop + ended.length + ended.abort + ended.deadline + ended.error,
            preemptions: stats.preemptions,
        },
        tokens: StateTokens {
            prompt_total: stats.prompt_tokens,
            generated_total: stats.generated_tokens,
            prompt_per_second: prompt_rate,
            generated_per_second: generated_rate,
        },
        latency: StateLatency {
            ttft_ms: percentiles(&histograms.time_to_first_token),
            itl_ms: percentiles(&histograms.inter_token_latency),
        },
        kv: StateCache {
            pages: stats.blocks_total,
            free: stats.blocks_free,
            used: stats.blocks_used,
            shared: stats.blocks_shared,
            cached: stats.blocks_cached,
            page_tokens: facts.page_tokens,
            map: map(&app.engine.page_map()),
        },
        prefix: StatePrefix {
            queries: stats.prefix_queries,
            hits: stats.prefix_hits,
        },
        steps: steps[steps.len().saturating_sub(STEPS)..]
            .iter()
            .map(|step| StateStep {
                ms: step.time.as_secs_f64() * 1e3,
                tokens: step.tokens,
                sequences: step.sequences,
            })
            .collect(),
        memory: StateMemory {
            weights: facts.weight_bytes,
            kv: facts.kv_bytes,
            scratch: facts.scratch_bytes,
        },
        kernels: app.engine.counts().dispatches(),
        bytes_moved: app.engine.counts().bytes_moved(),
    })
}

fn map(pages: &[BlockState]) -> String {
    let shown = pages.len().min(MAP_LENGTH);
    let letter = |place: usize| match pages[place * pages.len() / shown] {
        BlockState::Free => '.',
        BlockState::Cached => 'c',
        BlockState::Used => 'u',
        BlockState::Shared => 's',
    };
    (0..shown).map(letter).collect()
}

/// Milliseconds, of a histogram of seconds.
fn percentiles(histogram: &HistogramSnapshot) -> Percentiles {
    let milliseconds = |share| quantile(histogram, share).map(|seconds| seconds * 1e3);
    Percentiles {
        p50: milliseconds(0.5),
        p95: milliseconds(0.95),
    }
}

/// The value below which a share of all values lies, taking those of one bucket for evenly spread.
fn quantile(histogram: &HistogramSnapshot, share: f64) -> Option<f64> {
    let target = share * histogram.count() as f64;
    let (mut below, mut low) = (0.0, 0.0);
    for (count, high) in histogram.counts.iter().zip(histogram.bounds) {
        let count = *count as f64;
        if count > 0.0 && below + count >= target {
            return Some(low + (high - low) * (target - below) / count);
        }
        below += count;
        low = *high;
    }
    // Above the last bound nothing more is known.
    (histogram.count() > 0).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_inside_their_bucket() {
        let histogram = |counts: &[u64]| HistogramSnapshot {
            bounds: &[1.0, 2.0, 4.0],
            counts: counts.to_vec(),
            sum: 0.0,
        };
        assert_eq!(quantile(&histogram(&[0, 0, 0, 0]), 0.5), None);
        assert_eq!(quantile(&histogram(&[0, 10, 0, 0]), 0.5), Some(1.5));
        assert_eq!(quantile(&histogram(&[5, 0, 5, 0]), 0.5), Some(1.0));
        assert_eq!(quantile(&histogram(&[5, 0, 5, 0]), 0.75), Some(3.0));
        assert_eq!(quantile(&histogram(&[0, 0, 0, 1]), 0.5), Some(4.0));
    }

    #[test]
    fn a_large_pool_is_sampled() {
        use BlockState::{Cached, Free, Shared, Used};
        assert_eq!(map(&[]), "");
        assert_eq!(map(&[Free, Cached, Used, Shared]), ".cus");
        let mut pages = vec![Free; 10_000];
        pages[9_999] = Used;
        pages[0] = Shared;
        let map = map(&pages);
        assert_eq!((map.len(), &map[..2]), (4096, "s."));
    }
}
