//! Owns the figures of one run, as vLLM defines them: throughput, the spread of latencies, goodput.

use super::drive::Run;
use super::outcome::Outcome;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::str::FromStr;

/// How one kind of time is spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    pub mean: f64,
    pub std: f64,
    pub median: f64,
    pub p90: f64,
    pub p99: f64,
}

impl Quantiles {
    /// `None` of nothing.
    pub fn of(mut values: Vec<f64>) -> Option<Quantiles> {
        if values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        Some(Quantiles {
            mean,
            std: variance.sqrt(),
            median: quantile(&values, 0.5),
            p90: quantile(&values, 0.9),
            p99: quantile(&values, 0.99),
        })
    }
}

/// Between the two neighbours of its place, in proportion, as numpy does.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let low = sorted[place.floor() as usize];
    let high = sorted[place.ceil() as usize];
    low + (high - low) * place.fract()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalMetric {
    Ttft,
    Tpot,
    E2el,
}

/// A time that a request must keep to count as good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub metric: GoalMetric,
    pub milliseconds: f64,
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Goal, String> {
        let goal = text.split_once(':').and_then(|(name, limit)| {
            let metric = match name {
                "ttft" => GoalMetric::Ttft,
                "tpot" => GoalMetric::Tpot,
                "e2el" => GoalMetric::E2el,
                _ => return None,
            };
            let milliseconds = limit.parse().ok();
            let milliseconds = milliseconds.filter(|ms: &f64| *ms > 0.0 && ms.is_finite())?;
            Some(Goal {
                metric,
                milliseconds,
            })
        });
        goal.ok_or_else(|| {
            "it must be ttft, tpot or e2el with milliseconds, as ttft:500".to_owned()
        })
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.metric {
            GoalMetric::Ttft => "TTFT",
            GoalMetric::Tpot => "TPOT",
            GoalMetric::E2el => "E2E",
        };
        write!(f, "{name} ≤ {} ms", self.milliseconds)
    }
}

impl Goal {
    fn is_met(&self, outcome: &Outcome) -> bool {
        let seconds = match self.metric {
            GoalMetric::Ttft => outcome.ttft.unwrap_or(f64::INFINITY),
            // An answer of one token has no token after the first that could be late.
            GoalMetric::Tpot => outcome.tpot().unwrap_or(0.0),
            GoalMetric::E2el => outcome.latency,
        };
        seconds * 1e3 <= self.milliseconds
    }
}

/// One run in figures. Times are milliseconds; tokens and latencies are those of successful requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub completed: usize,
    pub failed: usize,
    /// By kind.
    pub failures: BTreeMap<&'static str, usize>,
    /// What the first failure of each kind said.
    pub failure_messages: BTreeMap<&'static str, String>,
    pub unfinished: usize,
    /// In seconds.
    pub duration: f64,
    pub total_input_tokens: usize,
    pub total_output_tokens: usize,
    pub total_cached_tokens: usize,
    pub request_throughput: f64,
    pub output_throughput: f64,
    pub total_token_throughput: f64,
    /// Requests a second that met every goal; `None` without goals.
    pub request_goodput: Option<f64>,
    pub peak_concurrency: usize,
    pub ttft: Option<Quantiles>,
    pub tpot: Option<Quantiles>,
    pub itl: Option<Quantiles>,
    pub e2el: Option<Quantiles>,
}

impl Summary {
    pub fn of(run: &Run, goals: &[Goal]) -> Summary {
        let good: Vec<&Outcome> = run.outcomes.iter().filter(|o| o.is_success()).collect();
        let mut failures: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut failure_messages = BTreeMap::new();
        for failure in run.outcomes.iter().filter_map(|o| o.failure.as_ref()) {
            *failures.entry(failure.kind.name()).or_default() += 1;
            failure_messages
                .entry(failure.kind.name())
                .or_insert_with(|| failure.message.clone());
        }
        let sum = |field: fn(&Outcome) -> usize| good.iter().map(|o| field(o)).sum::<usize>();
        let input = sum(|o| o.input_tokens);
        let output = sum(|o| o.output_tokens);
        let a_second = |amount: usize| match run.duration > 0.0 {
            true => amount as f64 / run.duration,
            false => 0.0,
        };
        let is_good = |outcome: &&&Outcome| goals.iter().all(|goal| goal.is_met(outcome));
        let met = good.iter().filter(is_good).count();
        let milliseconds = |seconds: Vec<f64>| {
            Quantiles::of(seconds.into_iter().map(|seconds| seconds * 1e3).collect())
        };
        Summary {
            completed: good.len(),
            failed: run.outcomes.len() - good.len(),
            failures,
            failure_messages,
            unfinished: run.unfinished,
            duration: run.duration,
            total_input_tokens: input,
            total_output_tokens: output,
            total_cached_tokens: sum(|o| o.cached_tokens),
            request_throughput: a_second(good.len()),
            output_throughput: a_second(output),
            total_token_throughput: a_second(input + output),
            request_goodput: (!goals.is_empty()).then(|| a_second(met)),
            peak_concurrency: peak_concurrency(&run.outcomes),
            ttft: milliseconds(good.iter().filter_map(|o| o.ttft).collect()),
            tpot: milliseconds(good.iter().filter_map(|o| o.tpot()).collect()),
            itl: milliseconds(good.iter().flat_map(|o| o.gaps.iter().copied()).collect()),
            e2el: milliseconds(good.iter().map(|o| o.latency).collect()),
        }
    }

    /// Under the names of vLLM's result files.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        put("duration", json!(self.duration));
        put("completed", json!(self.completed));
        put("failed", json!(self.failed));
        put("failures", json!(self.failures));
        put("failure_messages", json!(self.failure_messages));
        put("unfinished", json!(self.unfinished));
        put("total_input_tokens", json!(self.total_input_tokens));
        put("total_output_tokens", json!(self.total_output_tokens));
        put("total_cached_tokens", json!(self.total_cached_tokens));
        put("request_throughput", json!(self.request_throughput));
        put("request_goodput", json!(self.request_goodput));
        put("output_throughput", json!(self.output_throughput));
        put("total_token_throughput", json!(self.total_token_throughput));
        put("max_concurrent_requests", json!(self.peak_concurrency));
        for (_, name, quantiles) in self.latencies() {
            let of = |pick: fn(&Quantiles) -> f64| json!(quantiles.as_ref().map(pick));
            put(&format!("mean_{name}_ms"), of(|q| q.mean));
            put(&format!("median_{name}_ms"), of(|q| q.median));
            put(&format!("std_{name}_ms"), of(|q| q.std));
            put(&format!("p90_{name}_ms"), of(|q| q.p90));
            put(&format!("p99_{name}_ms"), of(|q| q.p99));
        }
        fields
    }

    /// With their names for people and in records.
    pub fn latencies(&self) -> [(&'static str, &'static str, Option<Quantiles>); 4] {
        [
            ("TTFT", "ttft", self.ttft),
            ("TPOT", "tpot", self.tpot),
            ("ITL", "itl", self.itl),
            ("E2E", "e2el", self.e2el),
        ]
    }
}

fn peak_concurrency(outcomes: &[Outcome]) -> usize {
    let mut changes: Vec<(f64, i64)> = Vec::with_capacity(outcomes.len() * 2);
    for outcome in outcomes {
        changes.push((outcome.sent, 1));
        changes.push((outcome.sent + outcome.latency, -1));
    }
    // At the same moment, an end comes before a start.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut now = 0;
    let counts = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    counts.max().unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Failure, FailureKind};

    fn outcome(sent: f64, ttft: f64, gaps: &[f64], output_tokens: usize) -> Outcome {
        Outcome {
            sent,
            ttft: Some(ttft),
            latency: ttft + gaps.iter().sum::<f64>(),
            gaps: gaps.to_vec(),
            input_tokens: 10,
            output_tokens,
            cached_tokens: 4,
            failure: None,
        }
    }

    fn run() -> Run {
        let mut busy = outcome(0.0, 0.1, &[], 0);
        busy.failure = Some(Failure::new(FailureKind::Busy, "429 full"));
        Run {
            outcomes: vec![
                outcome(0.0, 0.1, &[0.1, 0.3], 3),
                outcome(0.1, 0.3, &[0.2], 3),
                outcome(0.45, 0.2, &[], 1),
                busy,
            ],
            duration: 2.0,
            samples: Vec::new(),
            unfinished: 5,
        }
    }

    #[test]
    fn figures_are_those_counted_by_hand() {
        let summary = Summary::of(&run(), &[]);
        assert_eq!(
            (summary.completed, summary.failed, summary.unfinished),
            (3, 1, 5)
        );
        assert_eq!(summary.failures[FailureKind::Busy.name()], 1);
        assert_eq!(
            summary.failure_messages[FailureKind::Busy.name()],
            "429 full"
        );
        assert_eq!(
            (summary.total_input_tokens, summary.total_output_tokens),
            (30, 7)
        );
        assert_eq!(summary.total_cached_tokens, 12);
        assert_eq!(summary.request_throughput, 1.5);
        assert_eq!(summary.output_throughput, 3.5);
        assert_eq!(summary.total_token_throughput, 18.5);
        assert_eq!(summary.request_goodput, None);
        let near =
            |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
        let ttft = summary.ttft.unwrap();
        near(ttft.mean, 200.0);
        near(ttft.median, 200.0);
        near(ttft.std, (20000.0_f64 / 3.0).sqrt());
        // Places 1.8 and 1.98 of 100, 200, 300.
        near(ttft.p90, 280.0);
        near(ttft.p99, 298.0);
        // (0.5 - 0.1) / 2 and (0.5 - 0.3) / 2; one token has none.
        let tpot = summary.tpot.unwrap();
        near(tpot.mean, 150.0);
        near(tpot.p90, 190.0);
        // 100, 200, 300: of all requests together.
        near(summary.itl.unwrap().median, 200.0);
        // 500, 500, 200.
        near(summary.e2el.unwrap().mean, 400.0);
        // Three overlap from 0.1 (the failed one ends just then) to 0.5; the third starts at 0.45.
        assert_eq!(summary.peak_concurrency, 3);
    }

    #[test]
    fn goodput_counts_requests_that_meet_every_goal() {
        let goodput = |goals: &[&str]| {
            let goals: Vec<Goal> = goals.iter().map(|g| g.parse().unwrap()).collect();
            Summary::of(&run(), &goals).request_goodput.unwrap()
        };
        assert_eq!(goodput(&["ttft:250"]), 1.0);
        assert_eq!(goodput(&["ttft:250", "tpot:150"]), 0.5);
        assert_eq!(goodput(&["e2el:499"]), 0.5);
        assert_eq!(goodput(&["ttft:1"]), 0.0);
        for text in [
            "ttft", "ttft:", "ttft:0", "ttft:-1", "itl:5", "ttft:nan", ":5",
        ] {
            assert!(text.parse::<Goal>().is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_gives_no_figures_and_no_panic() {
        let summary = Summary::of(&Run::default(), &["ttft:1".parse().unwrap()]);
        assert_eq!(summary.ttft, None);
        assert_eq!(summary.request_goodput, Some(0.0));
        assert!(summary.fields()["mean_ttft_ms"].is_null());
        assert_eq!(Quantiles::of(vec![7.0]).unwrap().p99, 7.0);
    }
}
