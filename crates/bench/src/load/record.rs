//! Owns the record of a sweep: what was asked of which server, and all points with their requests, as JSON.

use super::arrivals::Rate;
use super::drive::Run;
use super::summary::{Goal, Summary};
use serde_json::{Map, Value, json};

/// One load and what it brought.
#[derive(Clone, Debug)]
pub struct Point {
    pub rate: Rate,
    pub concurrency: Option<usize>,
    pub prompts: usize,
    pub seed: u64,
    /// When it began, in seconds since the first point did.
    pub began: f64,
    pub run: Run,
    pub summary: Summary,
}

impl Point {
    /// What sets this point apart, for people.
    pub fn name(&self) -> String {
        let rate = match self.rate {
            Rate::Unlimited => None,
            Rate::PerSecond(rate) => Some(format!("{rate} requests/s")),
        };
        let concurrency = self.concurrency.map(|c| format!("concurrency {c}"));
        let parts: Vec<String> = concurrency.into_iter().chain(rate).collect();
        match parts.is_empty() {
            true => "all at once".to_owned(),
            false => parts.join(", "),
        }
    }

    fn json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), json!(self.name()));
        let rate = match self.rate {
            Rate::Unlimited => json!("inf"),
            Rate::PerSecond(rate) => json!(rate),
        };
        fields.insert("request_rate".to_owned(), rate);
        fields.insert("max_concurrency".to_owned(), json!(self.concurrency));
        fields.insert("num_prompts".to_owned(), json!(self.prompts));
        fields.insert("seed".to_owned(), json!(self.seed));
        fields.append(&mut self.summary.fields());
        let outcomes = &self.run.outcomes;
        let mut list = |name: &str, values: Vec<Value>| {
            fields.insert(name.to_owned(), Value::Array(values));
        };
        list(
            "start_times",
            outcomes.iter().map(|o| json!(o.sent)).collect(),
        );
        list("ttfts", outcomes.iter().map(|o| json!(o.ttft)).collect());
        list(
            "latencies",
            outcomes.iter().map(|o| json!(o.latency)).collect(),
        );
        list("itls", outcomes.iter().map(|o| json!(o.gaps)).collect());
        list(
            "input_lens",
            outcomes.iter().map(|o| json!(o.input_tokens)).collect(),
        );
        list(
            "output_lens",
            outcomes.iter().map(|o| json!(o.output_tokens)).collect(),
        );
        list(
            "cached_lens",
            outcomes.iter().map(|o| json!(o.cached_tokens)).collect(),
        );
        list(
            "errors",
            outcomes.iter().map(|o| json!(o.failure)).collect(),
        );
        list(
            "server_samples",
            self.run.samples.iter().map(|s| json!(s)).collect(),
        );
        Value::Object(fields)
    }
}

/// A sweep; a single run is a sweep of one point.
#[derive(Clone, Debug)]
pub struct LoadRecord {
    pub model: String,
    pub base_url: String,
    pub endpoint: &'static str,
    pub dataset: String,
    /// Token ids or words.
    pub prompts_are: &'static str,
    pub ignore_eos: bool,
    pub temperature: f64,
    pub warmup: usize,
    pub goals: Vec<Goal>,
    /// UTC.
    pub date: String,
    pub commit: String,
    /// The command that made it.
    pub command: String,
    pub is_interrupted: bool,
    pub points: Vec<Point>,
}

impl LoadRecord {
    pub fn json(&self) -> Value {
        let goals: Vec<String> = self.goals.iter().map(Goal::to_string).collect();
        json!({
            "bench": "serve",
            "date": self.date,
            "commit": self.commit,
            "command": self.command,
            "model": self.model,
            "base_url": self.base_url,
            "endpoint": self.endpoint,
            "dataset": self.dataset,
            "prompts_are": self.prompts_are,
            "ignore_eos": self.ignore_eos,
            "temperature": self.temperature,
            "warmup": self.warmup,
            "goodput_goals": goals,
            "interrupted": self.is_interrupted,
            "points": self.points.iter().map(Point::json).collect::<Vec<_>>(),
        })
    }
}
