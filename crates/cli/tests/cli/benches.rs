//! `mettle bench` and `mettle doctor` with a tiny model: every record has the fields that others read.

use crate::mettle::{Mettle, fixture};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// Ends the server even where the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(mettle: &Mettle, model: &str) -> (Running, String) {
    let mut command = mettle.command(&["serve", model, "--port", "0", "--api-key", "k"]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut server = Running(child.unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next().expect("a banner with a curl line").unwrap();
        if let Some(rest) = line.strip_prefix("try       curl ") {
            let url = rest.split("/v1").next().unwrap().to_owned();
            // The server writes more lines when it stops; somebody has to read them.
            std::thread::spawn(move || lines.for_each(drop));
            return (server, url);
        }
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_sweep_over_a_real_server_gives_figures_a_record_and_a_page() {
    let mettle = Mettle::new();
    let (_server, url) = serve(&mettle, &fixture("llama"));
    let args = [
        "bench",
        "serve",
        "--base-url",
        &url,
        "--api-key",
        "k",
        "--max-concurrency",
        "1,3",
        "--num-prompts",
        "6",
        "--input-len",
        "20",
        "--output-len",
        "5",
        "--goodput",
        "ttft:60000",
        "tpot:60000",
        "--json",
        "load.json",
        "--html",
        "load.html",
    ];
    let table = mettle.succeed(&args);
    for part in [
        "concurrency 1",
        "concurrency 3",
        "TTFT (ms)",
        "goodput",
        "output throughput",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let record = json(&std::fs::read_to_string(mettle.home.path().join("load.json")).unwrap());
    assert_eq!(
        (&record["bench"], &record["prompts_are"]),
        (&"serve".into(), &"token ids".into())
    );
    let command = record["command"].as_str().unwrap();
    assert!(command.contains("--api-key ...") && !command.contains("--api-key k"));
    for point in record["points"].as_array().unwrap() {
        assert_eq!(
            (&point["completed"], &point["failed"]),
            (&6.into(), &0.into())
        );
        assert_eq!(point["total_input_tokens"], 120);
        assert_eq!(point["total_output_tokens"], 30);
        // Prompts differ from point to point and from warm-up to load: nothing is found in the prefix cache.
        assert_eq!(point["total_cached_tokens"], 0);
        assert_eq!(point["request_goodput"], point["request_throughput"]);
        let ttft = point["median_ttft_ms"].as_f64().unwrap();
        assert!(ttft > 0.0 && ttft <= point["p99_ttft_ms"].as_f64().unwrap());
        assert_eq!(point["ttfts"].as_array().unwrap().len(), 6);
    }
    let page = std::fs::read_to_string(mettle.home.path().join("load.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("Time to first token"));

    let prefix = [
        "bench",
        "serve",
        "--base-url",
        &url,
        "--api-key",
        "k",
        "--dataset",
        "prefix",
        "--prefix-len",
        "70",
        "--num-prefixes",
        "1",
        "--input-len",
        "4",
        "--output-len",
        "2",
        "--num-prompts",
        "4",
        "--max-concurrency",
        "1",
        "--warmup",
        "0",
        "--json",
        "prefix.json",
    ];
    mettle.succeed(&prefix);
    let record = json(&std::fs::read_to_string(mettle.home.path().join("prefix.json")).unwrap());
    // Two pages of 32 tokens are shared by the last three of four prompts.
    assert_eq!(record["points"][0]["total_cached_tokens"], 3 * 64);

    let error = mettle.fail(
        1,
        &["bench", "serve", "--base-url", &url, "--num-prompts", "1"],
    );
    assert!(
        error.contains("401") && error.trim_end().lines().count() == 1,
        "{error}"
    );
}

#[test]
fn load_that_makes_no_sense_is_refused_in_one_line() {
    let mettle = Mettle::new();
    for (code, args, why) in [
        (2, vec!["--request-rate", "0"], "or inf"),
        (2, vec!["--num-prompts", "0"], "above 0"),
        (2, vec!["--goodput", "itl:3"], "ttft"),
        (2, vec!["--dataset", "sharegpt-file"], "--dataset-path"),
        (
            2,
            vec!["--request-rate", "1,2", "--max-concurrency", "1,2"],
            "not over both",
        ),
        (1, vec!["--base-url", "https://localhost"], "http://"),
        // Nobody listens on port 1.
        (
            1,
            vec!["--base-url", "http://127.0.0.1:1"],
            "no server answers",
        ),
        (1, vec!["--html", "no/such/folder.html"], "cannot write"),
    ] {
        let args = [vec!["bench", "serve"], args].concat();
        let error = mettle.fail(code, &args);
        let first = error.lines().next().unwrap();
        assert!(
            first.starts_with("error: ") && first.contains(why),
            "{error}"
        );
    }
}

#[test]
fn offline_benches_print_records_that_can_be_compared() {
    let mettle = Mettle::new();
    let model = fixture("llama");
    let args = [
        "bench",
        "latency",
        "-m",
        &model,
        "--input-len",
        "20",
        "--output-len",
        "4",
        "--json",
    ];
    let latency = json(&mettle.succeed(&args));
    for field in [
        "prefill_tokens_per_second",
        "decode_tokens_per_second",
        "load_seconds",
    ] {
        assert!(latency[field].as_f64().unwrap() > 0.0, "{field}");
    }
    for field in ["backend", "model", "commit", "device"] {
        assert!(!latency[field].as_str().unwrap().is_empty(), "{field}");
    }
    assert_eq!(latency["threads"], 2);
    let spread = &latency["decode"];
    assert!(spread["worst"].as_f64() <= spread["median"].as_f64());
    assert!(spread["median"].as_f64() <= spread["best"].as_f64());
    assert!(latency.get("decode_beside_memory").is_none());
    let with_memory = [&args[..], &["--memory", "--repeats", "2"]].concat();
    let beside = json(&mettle.succeed(&with_memory))["decode_beside_memory"].clone();
    assert_eq!(beside.as_array().unwrap().len(), 2);
    for run in beside.as_array().unwrap() {
        assert!(run["tokens_per_second"].as_f64().unwrap() > 0.0);
        let memory = run["memory_bytes_per_second"].as_array().unwrap();
        assert_eq!(memory.len(), 2);
        // No memory is slower than this, none faster than that.
        let is_memory = |rate: f64| rate > 1e8 && rate < 1e13;
        assert!(memory.iter().all(|rate| is_memory(rate.as_f64().unwrap())));
    }

    let args = [
        "bench",
        "throughput",
        "-m",
        &model,
        "--num-prompts",
        "5",
        "--input-len",
        "20",
        "--output-len",
        "4",
        "--max-num-seqs",
        "2",
        "--repeats",
        "2",
        "--json",
    ];
    let throughput = json(&mettle.succeed(&args));
    let seconds = throughput["elapsed_seconds"]["median"].as_f64().unwrap();
    let output = throughput["output_tokens_per_second"].as_f64().unwrap();
    assert!((output - 20.0 / seconds).abs() < 1e-6);
    assert_eq!(
        (&throughput["backend"], &throughput["max_num_seqs"]),
        (&"cpu".into(), &2.into())
    );

    for (name, record) in [("a.json", &latency), ("b.json", &throughput)] {
        std::fs::write(mettle.home.path().join(name), record.to_string()).unwrap();
    }
    let table = mettle.succeed(&["bench", "compare", "a.json", "a.json", "--filter", "decode"]);
    assert!(table.contains("1.000  overlap"), "{table}");
    let same = json(&mettle.succeed(&["bench", "compare", "a.json", "b.json", "--json"]));
    let rows = same["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "load_seconds"));
    let error = mettle.fail(1, &["bench", "compare", "a.json", "no.json"]);
    assert!(error.contains("no.json"), "{error}");
}

#[test]
fn kernels_of_a_model_are_timed_one_kind_at_a_time() {
    let mettle = Mettle::new();
    let model = fixture("llama");
    let args = [
        "bench", "kernels", "-m", &model, "--device", "cpu", "--rows", "70", "--filter", "gemm",
        "--json",
    ];
    let lines = mettle.succeed(&args);
    for line in lines.lines().map(json) {
        assert!(
            line["name"].as_str().unwrap().starts_with("gemm/"),
            "{line}"
        );
        // The ops of so small a model may be lost in the noise; they are listed all the same.
        let has_time = line["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0);
        assert_eq!(has_time, line["ceiling_share"].is_number(), "{line}");
        assert!(line["flops"].as_f64().unwrap() > 0.0);
        assert_eq!(line["rows"], 70);
    }
    // Keys, values and queries together, the output, gate and up together, down: of these some have equal shapes.
    assert!(lines.lines().count() >= 2, "{lines}");
    let error = mettle.fail(
        1,
        &[
            "bench", "kernels", "-m", &model, "--device", "cpu", "--filter", "zzz",
        ],
    );
    assert!(error.contains("zzz"), "{error}");
}

#[test]
fn the_doctor_measures_and_says_how_to_get_a_model() {
    let mettle = Mettle::new();
    let report = json(&mettle.succeed(&["doctor", "-m", &fixture("llama"), "--json"]));
    for field in ["one_thread", "all_threads"] {
        assert!(report[field]["read_bytes_per_second"].as_f64().unwrap() > 1e8);
        assert!(report[field]["flops_per_second"].as_f64().unwrap() > 1e8);
        assert!(report[field]["integer_ops_per_second"].as_f64().unwrap() > 1e8);
    }
    let share = report["decode"]["roofline_share"].as_f64().unwrap();
    assert!(share > 0.0 && share.is_finite());
    let names: Vec<&str> = report["backends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|backend| backend["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["metal", "cuda", "cpu"]);
    let text = mettle.succeed(&["doctor"]);
    assert!(text.contains("mettle pull smollm2:135m"), "{text}");
}
