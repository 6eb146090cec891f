//! Owns the page of a load record: what was measured, the figures in short, the charts, all figures in a table.

use super::chart::escape;
use super::scale::short;
use super::series::charts;
use crate::load::{Goal, LoadRecord, Point, Quantiles};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// The whole file. It needs nothing else.
pub fn html(record: &LoadRecord) -> String {
    let model = escape(&record.model);
    let mut page = format!(
        "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\"><title>{model} under load</title>
<style>{STYLE}</style></head><body><main>
<header><p class=\"kicker\">mettle bench serve</p><h1>{model}</h1><p class=\"lead\">{}</p></header>
",
        escape(&lead(record))
    );
    if record.is_interrupted {
        page.push_str("<p class=\"warning\">This run was stopped early: its last point is not complete.</p>\n");
    }
    page.push_str(&cards(record));
    page.push_str("<section class=\"charts\">\n");
    for chart in charts(record) {
        page.push_str(&chart.figure());
    }
    page.push_str("</section>\n");
    page.push_str(&table(record));
    page.push_str(&latency_table(record));
    page.push_str(&failures(record));
    page.push_str(&facts(record));
    page.push_str("</main></body></html>\n");
    page
}

fn lead(record: &LoadRecord) -> String {
    let requests: usize = record.points.iter().map(|p| p.prompts).sum();
    let points = match record.points.len() {
        1 => record.points[0].name(),
        count => format!("{count} loads"),
    };
    format!("{requests} requests, {points}, {}.", record.dataset)
}

/// The figures that people look for first.
fn cards(record: &LoadRecord) -> String {
    let by = |value: fn(&Point) -> Option<f64>, largest: bool| {
        let sign = if largest { 1.0 } else { -1.0 };
        let found = record.points.iter().filter_map(|p| Some((value(p)?, p)));
        found.max_by(|a, b| (sign * a.0).total_cmp(&(sign * b.0)))
    };
    let cards = [
        (
            "Output, best",
            "tokens/s",
            by(|p| Some(p.summary.output_throughput), true),
        ),
        (
            "Median TTFT, best",
            "ms",
            by(|p| p.summary.ttft.map(|q| q.median), false),
        ),
        (
            "Median TPOT, best",
            "ms",
            by(|p| p.summary.tpot.map(|q| q.median), false),
        ),
        (
            "Goodput, best",
            "requests/s",
            by(|p| p.summary.request_goodput, true),
        ),
    ];
    let mut html = "<section class=\"cards\">\n".to_owned();
    for (title, unit, found) in cards {
        if let Some((value, point)) = found {
            let (value, name) = (short(value), escape(&point.name()));
            let _ = writeln!(
                html,
                "<div class=\"card\"><h2>{title}</h2><p class=\"figure\">{value} <span>{unit}</span></p><p>{name}</p></div>"
            );
        }
    }
    let failed: usize = record.points.iter().map(|p| p.summary.failed).sum();
    let completed: usize = record.points.iter().map(|p| p.summary.completed).sum();
    let class = if failed > 0 { "card bad" } else { "card" };
    let _ = writeln!(
        html,
        "<div class=\"{class}\"><h2>Failures</h2><p class=\"figure\">{failed}</p><p>of {} requests</p></div>\n</section>",
        completed + failed
    );
    html
}

fn table(record: &LoadRecord) -> String {
    let has_goals = !record.goals.is_empty();
    let mut names = vec![
        "load",
        "ok",
        "failed",
        "seconds",
        "input tokens",
        "from cache",
        "output tokens",
    ];
    names.extend(["most at once", "requests/s"]);
    names.extend(has_goals.then_some("good requests/s"));
    names.extend(["output tok/s", "total tok/s"]);
    let mut html =
        "<section><h2>Throughput</h2><div class=\"scroll\"><table><thead><tr>".to_owned();
    for name in names {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for point in &record.points {
        let s = &point.summary;
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2}</td>",
            escape(&point.name()),
            s.completed,
            s.failed,
            s.duration,
            s.total_input_tokens,
            s.total_cached_tokens,
            s.total_output_tokens,
            s.peak_concurrency,
            s.request_throughput,
        );
        if has_goals {
            let _ = write!(html, "<td>{:.2}</td>", s.request_goodput.unwrap_or(0.0));
        }
        let (output, total) = (s.output_throughput, s.total_token_throughput);
        let _ = writeln!(html, "<td>{output:.1}</td><td>{total:.1}</td></tr>");
    }
    html.push_str("</tbody></table></div></section>\n");
    html
}

fn latency_table(record: &LoadRecord) -> String {
    let mut html = "<section><h2>Latencies in milliseconds</h2><div class=\"scroll\"><table><thead><tr><th rowspan=\"2\">load</th>".to_owned();
    for name in ["TTFT", "TPOT", "ITL", "E2E"] {
        let _ = write!(html, "<th colspan=\"4\" class=\"group\">{name}</th>");
    }
    html.push_str("</tr><tr>");
    for _ in 0..4 {
        html.push_str("<th class=\"first\">mean</th><th>median</th><th>P90</th><th>P99</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for point in &record.points {
        let _ = write!(html, "<tr><th>{}</th>", escape(&point.name()));
        for (_, _, quantiles) in point.summary.latencies() {
            html.push_str(&quantile_cells(quantiles));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div></section>\n");
    html
}

fn quantile_cells(quantiles: Option<Quantiles>) -> String {
    let Some(q) = quantiles else {
        return "<td class=\"first\">-</td><td>-</td><td>-</td><td>-</td>".to_owned();
    };
    let cell = |ms: f64| match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms => format!("{ms:.1}"),
    };
    format!(
        "<td class=\"first\">{}</td><td>{}</td><td>{}</td><td>{}</td>",
        cell(q.mean),
        cell(q.median),
        cell(q.p90),
        cell(q.p99)
    )
}

fn failures(record: &LoadRecord) -> String {
    let mut html = String::new();
    for point in &record.points {
        for (kind, count) in &point.summary.failures {
            let message = point.summary.failure_messages.get(kind);
            let _ = writeln!(
                html,
                "<li>{}: {count} × {kind} <code>{}</code></li>",
                escape(&point.name()),
                escape(message.map_or("", String::as_str))
            );
        }
    }
    match html.is_empty() {
        true => html,
        false => format!("<section><h2>Failures</h2><ul>\n{html}</ul></section>\n"),
    }
}

fn facts(record: &LoadRecord) -> String {
    let goals: Vec<String> = record.goals.iter().map(Goal::to_string).collect();
    let goals = match goals.is_empty() {
        true => "none".to_owned(),
        false => goals.join(", "),
    };
    let rows = [
        ("Server", format!("{} {}", record.base_url, record.endpoint)),
        (
            "Prompts",
            format!("{}, written as {}", record.dataset, record.prompts_are),
        ),
        (
            "Answers",
            format!(
                "temperature {}, {}",
                record.temperature,
                if record.ignore_eos {
                    "always to their full length"
                } else {
                    "until the model ends them"
                }
            ),
        ),
        (
            "Warm-up",
            format!("{} requests before each load", record.warmup),
        ),
        ("Goals", goals),
        (
            "Made",
            format!("{} by mettle {}", record.date, record.commit),
        ),
        ("Command", record.command.clone()),
    ];
    let mut html = "<section class=\"facts\"><h2>How it was measured</h2><dl>\n".to_owned();
    for (name, text) in rows {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&text));
    }
    html.push_str("</dl>
<p>TTFT is the time from sending a request to its first token, TPOT the mean time of its other tokens, ITL the gap between two of its events, E2E the time from sending it to its last token. Goodput counts the requests that met every goal. Token counts are the server's own.</p></section>\n");
    html
}
