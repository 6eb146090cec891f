//! Owns the figures of a load as a person at a terminal sees them: a block for each load, a table for a sweep.

use mettle_bench::load::{LoadRecord, Point};
use std::io::{self, Write};

pub fn print_point(point: &Point) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let s = &point.summary;
    writeln!(out, "\n{}", point.name())?;
    writeln!(out, "  {:<24} {:>10}", "successful requests", s.completed)?;
    writeln!(out, "  {:<24} {:>10}", "failed requests", s.failed)?;
    for (kind, count) in &s.failures {
        let message = s.failure_messages.get(kind).map_or("", String::as_str);
        writeln!(out, "    {kind:<22} {count:>10}  {message}")?;
    }
    if s.unfinished > 0 {
        writeln!(
            out,
            "  {:<24} {:>10}",
            "stopped before their end", s.unfinished
        )?;
    }
    writeln!(out, "  {:<24} {:>10.2} s", "duration", s.duration)?;
    writeln!(out, "  {:<24} {:>10}", "input tokens", s.total_input_tokens)?;
    if s.total_cached_tokens > 0 {
        writeln!(
            out,
            "  {:<24} {:>10}",
            "  from the prefix cache", s.total_cached_tokens
        )?;
    }
    writeln!(
        out,
        "  {:<24} {:>10}",
        "output tokens", s.total_output_tokens
    )?;
    writeln!(
        out,
        "  {:<24} {:>10}",
        "most requests at once", s.peak_concurrency
    )?;
    writeln!(
        out,
        "  {:<24} {:>10.2} requests/s",
        "request throughput", s.request_throughput
    )?;
    if let Some(goodput) = s.request_goodput {
        writeln!(out, "  {:<24} {:>10.2} requests/s", "goodput", goodput)?;
    }
    writeln!(
        out,
        "  {:<24} {:>10.1} tok/s",
        "output throughput", s.output_throughput
    )?;
    writeln!(
        out,
        "  {:<24} {:>10.1} tok/s",
        "total throughput", s.total_token_throughput
    )?;
    writeln!(
        out,
        "  {:<24} {:>10} {:>10} {:>10} {:>10}",
        "", "mean", "median", "P90", "P99"
    )?;
    for (name, _, quantiles) in s.latencies() {
        let Some(q) = quantiles else { continue };
        let name = format!("{name} (ms)");
        writeln!(
            out,
            "  {name:<24} {:>10.2} {:>10.2} {:>10.2} {:>10.2}",
            q.mean, q.median, q.p90, q.p99
        )?;
    }
    Ok(())
}

pub fn print_sweep(record: &LoadRecord) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let names: Vec<String> = record.points.iter().map(Point::name).collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let good = if record.goals.is_empty() {
        ""
    } else {
        "good/s"
    };
    writeln!(
        out,
        "\n{:<width$} {:>6} {:>6} {:>8} {good:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "load",
        "ok",
        "failed",
        "req/s",
        "out tok/s",
        "TTFT p50",
        "TTFT p99",
        "TPOT p50",
        "TPOT p99",
        "E2E p50"
    )?;
    for (point, name) in record.points.iter().zip(names) {
        let s = &point.summary;
        let goodput = s
            .request_goodput
            .map_or(String::new(), |g| format!("{g:.2}"));
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        writeln!(
            out,
            "{name:<width$} {:>6} {:>6} {:>8.2} {goodput:>7} {:>9.1} {:>9} {:>9} {:>9} {:>9} {:>9}",
            s.completed,
            s.failed,
            s.request_throughput,
            s.output_throughput,
            cell(s.ttft.map(|q| q.median)),
            cell(s.ttft.map(|q| q.p99)),
            cell(s.tpot.map(|q| q.median)),
            cell(s.tpot.map(|q| q.p99)),
            cell(s.e2el.map(|q| q.median))
        )?;
    }
    Ok(())
}
