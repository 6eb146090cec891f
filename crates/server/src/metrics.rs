//! Owns `/metrics`: the engine's numbers in Prometheus' text form, each under vLLM's prefix and under ours.

use crate::app::App;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use mettle_engine::HistogramSnapshot;
use std::fmt::Write;
use std::sync::Arc;

/// The first is for dashboards that exist already.
const PREFIXES: [&str; 2] = ["vllm", "mettle"];

pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text(&app)).into_response()
}

fn text(app: &App) -> String {
    let stats = app.engine.stats();
    let mut page = Page::new(app.model_name());
    // An encoder has no cache of which any could be used.
    let used = stats.blocks_used as f64 / stats.blocks_total.max(1) as f64;
    for (name, help, value) in [
        (
            "num_requests_running",
            "Answers being made",
            stats.running as f64,
        ),
        (
            "num_requests_waiting",
            "Answers that wait",
            stats.waiting as f64,
        ),
        (
            "kv_cache_usage_perc",
            "Share of the KV cache in use, 1 is all",
            used,
        ),
    ] {
        page.metric(name, "gauge", help, |page, name| page.line(name, "", value));
    }
    let facts = &app.options.facts;
    let config = format!(
        "block_size=\"{}\",num_gpu_blocks=\"{}\",cache_dtype=\"auto\"",
        facts.page_tokens, stats.blocks_total
    );
    page.metric(
        "cache_config_info",
        "gauge",
        "The KV cache",
        |page, name| {
            page.line(name, &config, 1.0);
        },
    );
    for (name, help, value) in [
        (
            "prefix_cache_queries",
            "Prompt tokens looked up in the prefix cache",
            stats.prefix_queries,
        ),
        (
            "prefix_cache_hits",
            "Prompt tokens found in the prefix cache",
            stats.prefix_hits,
        ),
        (
            "num_preemptions",
            "Answers put back to make room",
            stats.preemptions,
        ),
        (
            "prompt_tokens",
            "Prompt tokens taken in",
            stats.prompt_tokens,
        ),
        ("generation_tokens", "Tokens made", stats.generated_tokens),
    ] {
        let name = format!("{name}_total");
        page.metric(&name, "counter", help, |page, name| {
            page.line(name, "", value as f64);
        });
    }
    let ended = &stats.ended;
    page.metric(
        "request_success_total",
        "counter",
        "Answers that ended",
        |page, name| {
            for (reason, count) in [
                ("stop", ended.stop),
                ("length", ended.length),
                ("abort", ended.abort),
                ("deadline", ended.deadline),
                ("error", ended.error),
            ] {
                let label = format!("finished_reason=\"{reason}\"");
                page.line(name, &label, count as f64);
            }
        },
    );
    histograms(app, &mut page);
    page.ours(app);
    page.text
}

fn histograms(app: &App, page: &mut Page) {
    let all = app.engine.histograms();
    for (name, help, histogram) in [
        (
            "time_to_first_token_seconds",
            "From submission to the first token",
            &all.time_to_first_token,
        ),
        (
            "inter_token_latency_seconds",
            "Between two tokens of an answer",
            &all.inter_token_latency,
        ),
        (
            "request_time_per_output_token_seconds",
            "Mean time of an answer's tokens after the first",
            &all.time_per_output_token,
        ),
        (
            "e2e_request_latency_seconds",
            "From submission to the end",
            &all.end_to_end,
        ),
        (
            "request_queue_time_seconds",
            "From submission to the first step",
            &all.queue_time,
        ),
        (
            "request_inference_time_seconds",
            "From the first step to the end",
            &all.inference_time,
        ),
        (
            "request_prefill_time_seconds",
            "From the first step to the first token",
            &all.prefill_time,
        ),
        (
            "request_decode_time_seconds",
            "From the first token to the end",
            &all.decode_time,
        ),
        (
            "request_prompt_tokens",
            "Tokens of a prompt",
            &all.prompt_tokens,
        ),
        (
            "request_generation_tokens",
            "Tokens of an answer",
            &all.generated_tokens,
        ),
        ("request_params_n", "Answers asked for", &all.choices),
        (
            "request_params_max_tokens",
            "Tokens asked for at the most",
            &all.max_tokens,
        ),
        (
            "iteration_tokens_total",
            "Tokens of a step",
            &all.step_tokens,
        ),
    ] {
        page.metric(name, "histogram", help, |page, name| {
            page.histogram(name, histogram)
        });
    }
}

/// The text as it grows.
struct Page {
    text: String,
    labels: String,
}

impl Page {
    fn new(model: &str) -> Page {
        Page {
            text: String::with_capacity(32 << 10),
            labels: format!("model_name=\"{}\",engine=\"0\"", escaped(model)),
        }
    }

    /// One metric under both prefixes.
    fn metric(&mut self, name: &str, kind: &str, help: &str, write: impl Fn(&mut Page, &str)) {
        for prefix in PREFIXES {
            let name = format!("{prefix}:{name}");
            self.begin(&name, kind, help);
            write(self, &name);
        }
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, more: &str, value: f64) {
        let comma = if more.is_empty() { "" } else { "," };
        let _ = writeln!(self.text, "{name}{{{}{comma}{more}}} {value}", self.labels);
    }

    fn histogram(&mut self, name: &str, histogram: &HistogramSnapshot) {
        let mut count = 0;
        let bucket = format!("{name}_bucket");
        for (more, bound) in histogram.counts.iter().zip(histogram.bounds) {
            count += more;
            self.line(&bucket, &format!("le=\"{bound}\""), count as f64);
        }
        count += histogram.counts.last().copied().unwrap_or(0);
        self.line(&bucket, "le=\"+Inf\"", count as f64);
        self.line(&format!("{name}_sum"), "", histogram.sum);
        self.line(&format!("{name}_count"), "", count as f64);
    }

    /// What other engines do not have.
    fn ours(&mut self, app: &App) {
        let facts = &app.options.facts;
        let name = "mettle:backend_info";
        self.begin(name, "gauge", "Where the model runs and why");
        let labels = format!(
            "device=\"{}\",backend=\"{}\",reason=\"{}\"",
            escaped(&facts.backend),
            escaped(&facts.device),
            escaped(&facts.backend_reason)
        );
        self.line(name, &labels, 1.0);
        let counts = app.engine.counts();
        let name = "mettle:kernel_dispatches_total";
        self.begin(name, "counter", "How often each kernel ran");
        for (kernel, count) in counts.dispatches() {
            let kernel = escaped(kernel);
            let device = escaped(&facts.device);
            let labels = format!("kernel=\"{kernel}\",backend=\"{device}\"");
            self.line(name, &labels, count as f64);
        }
        let name = "mettle:bytes_moved_total";
        let help = "Bytes of weights, KV cache and activations that steps had to move at the least";
        self.begin(name, "counter", help);
        self.line(name, "", counts.bytes_moved() as f64);
    }
}

fn escaped(label: &str) -> String {
    let label = label.replace('\\', "\\\\").replace('"', "\\\"");
    label.replace('\n', "\\n")
}
