//! The page of a load record: well formed, complete, and safe whatever a server is called.

use mettle_bench::load::{
    Failure, FailureKind, LoadRecord, Outcome, Point, Rate, Run, Sample, Summary,
};
use mettle_bench::report::html;

/// Tags that have no end.
const EMPTY_TAGS: [&str; 2] = ["meta", "!doctype"];

fn point(rate: Rate, concurrency: Option<usize>, requests: usize) -> Point {
    let outcome = |number: usize| {
        let gaps: Vec<f64> = (1..6).map(|n| 0.01 * (n + number) as f64).collect();
        let failure = Failure::new(FailureKind::Status, "500 <b>no</b> & \"nothing\"");
        Outcome {
            sent: number as f64,
            ttft: Some(0.1 + 0.05 * number as f64),
            latency: 0.5 + gaps.iter().sum::<f64>(),
            gaps,
            input_tokens: 10,
            output_tokens: 6,
            cached_tokens: 0,
            failure: (number == 3).then_some(failure),
        }
    };
    let sample = |number: usize| Sample {
        at: number as f64 * 0.25,
        running: number as f64,
        waiting: 1.0,
        kv_usage: Some(0.5),
    };
    let run = Run {
        outcomes: (0..requests).map(outcome).collect(),
        duration: 9.0,
        samples: (0..20).map(sample).collect(),
        unfinished: 0,
    };
    let summary = Summary::of(&run, &["ttft:300".parse().unwrap()]);
    Point {
        rate,
        concurrency,
        prompts: requests,
        seed: 0,
        began: 0.0,
        run,
        summary,
    }
}

fn record(points: Vec<Point>) -> LoadRecord {
    LoadRecord {
        model: "<script>alert(1)</script>".to_owned(),
        base_url: "http://host:1/?a&b".to_owned(),
        endpoint: "/v1/completions",
        dataset: "random".to_owned(),
        prompts_are: "token ids",
        ignore_eos: true,
        temperature: 0.0,
        warmup: 1,
        goals: vec!["ttft:300".parse().unwrap()],
        date: "today".to_owned(),
        commit: "abc".to_owned(),
        command: "mettle bench serve '\u{1}'".to_owned(),
        is_interrupted: true,
        points,
    }
}

/// Every tag is closed in order, every attribute is quoted, and nothing else holds a `<`.
fn check_well_formed(page: &str) {
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        assert!(
            !rest[..start].contains('>'),
            "a bare > before {}",
            &rest[start..start + 20]
        );
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name: String = tag
            .chars()
            .take_while(|c| !c.is_whitespace() && *c != '/')
            .collect();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let quotes = tag.split('"').step_by(2);
        assert!(
            quotes
                .clone()
                .skip(1)
                .all(|part| part.is_empty() || part.starts_with([' ', '/'])),
            "{tag}"
        );
        if name == "style" {
            rest = &rest[rest.find("</style>").expect("a style ends")..];
        }
        if !tag.ends_with('/') && !EMPTY_TAGS.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn a_sweep_has_every_chart_and_is_well_formed() {
    let rates = [Rate::PerSecond(1.0), Rate::PerSecond(2.5), Rate::Unlimited];
    let page = html(&record(rates.map(|rate| point(rate, None, 8)).to_vec()));
    check_well_formed(&page);
    for title in [
        "Time to first token",
        "Time per output token",
        "Throughput",
        "Latency against throughput",
        "Goodput",
        "Inter-token latency",
        "Requests over time",
        "KV cache over time",
    ] {
        assert!(page.contains(&format!("<figcaption>{title}")), "{title}");
    }
    assert_eq!(page.matches("<svg").count(), 8);
    assert!(!page.contains("<script") && !page.contains("<b>no"));
    assert!(!page.contains("NaN") && !page.contains("inf\""));
    assert!(page.contains("requests per second offered"));
}

#[test]
fn single_runs_and_failed_ones_are_pages_too() {
    let one = html(&record(vec![point(Rate::Unlimited, Some(4), 8)]));
    check_well_formed(&one);
    assert_eq!(one.matches("<svg").count(), 4);
    let mut nothing = record(vec![point(Rate::Unlimited, Some(4), 0)]);
    nothing.points[0].run.samples.clear();
    let page = html(&nothing);
    check_well_formed(&page);
    assert_eq!(page.matches("<svg").count(), 0);
}

#[test]
fn the_json_has_the_figures_and_the_requests() {
    let json = record(vec![point(Rate::PerSecond(2.0), Some(4), 8)]).json();
    let point = &json["points"][0];
    assert_eq!(point["request_rate"], 2.0);
    assert_eq!(
        (&point["completed"], &point["failed"]),
        (&7.into(), &1.into())
    );
    assert_eq!(point["ttfts"].as_array().unwrap().len(), 8);
    assert_eq!(point["itls"][0].as_array().unwrap().len(), 5);
    assert_eq!(point["errors"][3]["kind"], "status");
    assert!(point["mean_ttft_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(point["server_samples"].as_array().unwrap().len(), 20);
}
