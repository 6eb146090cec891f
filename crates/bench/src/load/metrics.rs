//! Owns what a server says of itself while it is under load: requests running and waiting, and the share of its KV cache.

use super::http::Client;
use hyper::Method;
use serde::Serialize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

const PERIOD: Duration = Duration::from_millis(250);

/// The server at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub at: f64,
    pub running: f64,
    pub waiting: f64,
    /// From 0 to 1; not every server tells.
    pub kv_usage: Option<f64>,
}

/// Looks at `/metrics` until it is stopped.
pub struct Watch {
    samples: Arc<Mutex<Vec<Sample>>>,
    task: JoinHandle<()>,
}

impl Watch {
    pub fn start(client: Client, run_start: Instant) -> Watch {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let target = samples.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let answer = client.fetch(Method::GET, "/metrics", Vec::new()).await;
                let at = run_start.elapsed().as_secs_f64();
                let text = match answer {
                    Ok((status, body)) if status.is_success() => body,
                    // Busy for a moment, or gone: the requests will tell.
                    Ok((status, _)) if status.is_server_error() => continue,
                    Err(_) => continue,
                    // It has no such page.
                    Ok(_) => return,
                };
                let Some(sample) = read(&String::from_utf8_lossy(&text), at) else {
                    return;
                };
                target.lock().expect("no holder panics").push(sample);
            }
        });
        Watch { samples, task }
    }

    pub fn stop(self) -> Vec<Sample> {
        self.task.abort();
        std::mem::take(&mut *self.samples.lock().expect("no holder panics"))
    }
}

/// Under the names that vLLM (and Mettle), and llama.cpp, give them.
fn read(text: &str, at: f64) -> Option<Sample> {
    let sum = |names: [&str; 2]| {
        let of = |name: &&str| values(text, name).reduce(|a, b| a + b);
        names.iter().find_map(of)
    };
    Some(Sample {
        at,
        running: sum(["vllm:num_requests_running", "llamacpp:requests_processing"])?,
        waiting: sum(["vllm:num_requests_waiting", "llamacpp:requests_deferred"])?,
        kv_usage: sum(["vllm:kv_cache_usage_perc", "llamacpp:kv_cache_usage_ratio"]),
    })
}

/// The values of one metric, whatever its labels.
fn values<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let rest = match rest.strip_prefix('{') {
            Some(labels) => &labels[labels.rfind('}')? + 1..],
            None => rest,
        };
        rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_are_read_and_other_pages_are_none() {
        let page = "# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name=\"a b}\"} 3
vllm:num_requests_running_total{} 9
vllm:num_requests_waiting{model_name=\"x\"} 2.0
vllm:kv_cache_usage_perc{model_name=\"x\"} 0.25
";
        let sample = read(page, 1.5).unwrap();
        assert_eq!((sample.at, sample.running, sample.waiting), (1.5, 3.0, 2.0));
        assert_eq!(sample.kv_usage, Some(0.25));
        let page = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n";
        let sample = read(page, 0.0).unwrap();
        assert_eq!(
            (sample.running, sample.waiting, sample.kv_usage),
            (1.0, 4.0, None)
        );
        assert_eq!(read("<html>not found</html>", 0.0), None);
    }
}
