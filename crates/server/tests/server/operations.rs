//! Metrics, the engine's state, load, CORS, hosts, ids: what is not about text.

use crate::client::{connect, receive, send};
use crate::server::{NAME, Server, Setup, options};
use mettle_engine::mock::MockStep;
use mettle_server::{AppOptions, EngineFacts};
use serde_json::json;
use std::io::Write;
use std::time::Duration;

fn with_facts() -> Server {
    Server::with(Setup {
        options: AppOptions {
            facts: EngineFacts {
                backend: "Mock 3000 \"quoted\"".into(),
                backend_reason: "a test".into(),
                device: "mock".into(),
                max_num_seqs: 1,
                max_num_batched_tokens: 512,
                page_tokens: 16,
                weight_bytes: 1,
                kv_bytes: 2,
                scratch_bytes: 3,
            },
            ..options()
        },
        ..Setup::default()
    })
}

#[test]
fn metrics_count_what_was_done() {
    let server = with_facts();
    server.complete(json!({"prompt": vec![1; 40], "max_tokens": 3}));
    server.complete(json!({"prompt": vec![1; 40], "max_tokens": 3}));
    server.wait_until_idle();
    let response = server.get("/metrics");
    assert!(response.head.contains("text/plain; version=0.0.4"));
    let value = |line: &str| -> f64 {
        let found = response.body.lines().find(|l| l.starts_with(line));
        let found = found.unwrap_or_else(|| panic!("{line} is missing:\n{}", response.body));
        found.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let labels = format!("{{model_name=\"{NAME}\",engine=\"0\"");
    for prefix in ["vllm", "mettle"] {
        let of = |name: &str| value(&format!("{prefix}:{name}{labels}"));
        assert_eq!(of("num_requests_running"), 0.0);
        assert_eq!(of("num_requests_waiting"), 0.0);
        assert_eq!(of("kv_cache_usage_perc"), 0.0);
        assert_eq!(of("cache_config_info"), 1.0);
        assert_eq!(of("prompt_tokens_total"), 80.0);
        assert_eq!(of("generation_tokens_total"), 6.0);
        assert_eq!(of("prefix_cache_queries_total"), 80.0);
        assert_eq!(of("prefix_cache_hits_total"), 32.0);
        assert_eq!(of("num_preemptions_total"), 0.0);
        assert_eq!(
            value(&format!(
                "{prefix}:request_success_total{labels},finished_reason=\"length\""
            )),
            2.0
        );
        for name in [
            "time_to_first_token_seconds",
            "inter_token_latency_seconds",
            "request_time_per_output_token_seconds",
            "e2e_request_latency_seconds",
            "request_queue_time_seconds",
            "request_inference_time_seconds",
            "request_prefill_time_seconds",
            "request_decode_time_seconds",
            "request_prompt_tokens",
            "request_generation_tokens",
            "request_params_n",
            "request_params_max_tokens",
            "iteration_tokens_total",
        ] {
            let count = of(&format!("{name}_count"));
            assert!(count >= 2.0, "{name}: {count}");
            let all = value(&format!("{prefix}:{name}_bucket{labels},le=\"+Inf\""));
            assert_eq!(all, count, "{name}");
            assert!(of(&format!("{name}_sum")) > 0.0);
        }
    }
    // A prompt and two more tokens, twice, the second time with 32 tokens from the cache.
    let kernel = format!("mettle:kernel_dispatches_total{labels},kernel=\"mock\",backend=\"mock\"");
    assert_eq!(value(&kernel), 6.0);
    let bytes = format!("mettle:bytes_moved_total{labels}");
    assert_eq!(value(&bytes), 80.0 - 32.0 + 4.0);
    assert!(
        response
            .body
            .contains("backend=\"mock\",reason=\"a test\"} 1")
    );
    assert!(
        response
            .body
            .contains("device=\"Mock 3000 \\\"quoted\\\"\"")
    );
    // Each metric is described once, and every line is of a described one.
    let names: Vec<_> = response
        .body
        .lines()
        .filter_map(|l| l.strip_prefix("# TYPE "))
        .collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
}

#[test]
fn the_state_of_the_engine() {
    let server = with_facts();
    let prompt: Vec<u32> = (0..40).collect();
    server.complete(json!({"prompt": prompt, "max_tokens": 3}));
    server.wait_until_idle();
    server.get("/engine/state");
    std::thread::sleep(Duration::from_millis(50));
    let state = server.get("/engine/state").json();
    assert_eq!(state["model"], NAME);
    assert_eq!(state["backend_reason"], "a test");
    assert_eq!(
        state["limits"],
        json!({"max_model_len": 256, "max_num_seqs": 1, "max_num_batched_tokens": 512})
    );
    assert_eq!(
        state["requests"],
        json!({"running": 0, "waiting": 0, "finished": 1, "preemptions": 0})
    );
    assert_eq!(state["tokens"]["prompt_total"], 40);
    assert_eq!(state["tokens"]["generated_total"], 3);
    assert_eq!(state["tokens"]["generated_per_second"], 0.0);
    assert!(state["latency"]["ttft_ms"]["p50"].as_f64().unwrap() > 0.0);
    let kv = &state["kv"];
    assert_eq!((&kv["pages"], &kv["page_tokens"]), (&json!(64), &json!(16)));
    let map = kv["map"].as_str().unwrap();
    assert_eq!(map.len(), 64);
    assert_eq!(
        map.matches('c').count(),
        kv["cached"].as_u64().unwrap() as usize
    );
    assert!(map.contains('c') && map.contains('.'), "{map}");
    assert_eq!(state["prefix"], json!({"queries": 40, "hits": 0}));
    let steps = state["steps"].as_array().unwrap();
    assert_eq!(steps[0]["tokens"], 40);
    assert_eq!(steps[0]["sequences"], 1);
    assert_eq!(
        state["memory"],
        json!({"weights": 1, "kv": 2, "scratch": 3})
    );
    assert_eq!(state["kernels"], json!({"mock": 3}));
    assert_eq!(state["bytes_moved"], 42);
    assert!(state["uptime_seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn load_counts_requests_under_way() {
    let server = Server::with(Setup {
        hook: Box::new(|_| {
            std::thread::sleep(Duration::from_millis(20));
            MockStep::Run
        }),
        ..Setup::default()
    });
    assert_eq!(server.get("/load").json(), json!({"server_load": 0}));
    let body = br#"{"prompt": "a", "max_tokens": 200}"#;
    let headers = "Content-Type: application/json\r\n";
    let client = send(server.address, "POST", "/v1/completions", headers, body);
    let start = std::time::Instant::now();
    while server.get("/load").json()["server_load"] == 0 {
        assert!(start.elapsed() < crate::client::PATIENCE);
    }
    drop(client);
}

#[test]
fn browsers_may_ask_from_allowed_pages() {
    let preflight = "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
    let ask = |server: &Server, method: &str, headers: &str| {
        receive(send(server.address, method, "/v1/models", headers, b""))
    };
    let open = Server::start();
    let answer = ask(&open, "GET", "Origin: https://a.example\r\n");
    assert!(
        answer.head.contains("access-control-allow-origin: *"),
        "{answer:?}"
    );
    assert!(
        !ask(&open, "GET", "")
            .head
            .contains("access-control-allow-origin")
    );
    // A browser asks before it may send the key.
    let closed = Server::with(Setup {
        options: AppOptions {
            api_keys: vec!["key".into()],
            allowed_origins: vec!["https://a.example".into()],
            ..options()
        },
        ..Setup::default()
    });
    let answer = ask(&closed, "OPTIONS", preflight);
    assert_eq!(answer.status, 204);
    for header in [
        "access-control-allow-origin: https://a.example",
        "access-control-allow-headers: authorization",
        "access-control-allow-methods: get, post, options",
    ] {
        assert!(answer.head.contains(header), "{header}: {answer:?}");
    }
    // A page must be able to read why it was refused.
    let refused = ask(&closed, "GET", "Origin: https://a.example\r\n");
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("access-control-allow-origin"));
    let other = ask(&closed, "GET", "Origin: https://b.example\r\n");
    assert!(!other.head.contains("access-control-allow-origin"));
}

#[test]
fn a_request_names_one_host() {
    let server = Server::start();
    let ask = |head: &str| {
        let mut stream = connect(server.address);
        stream
            .write_all(
                format!("GET /version HTTP/1.1\r\nConnection: close\r\n{head}\r\n").as_bytes(),
            )
            .unwrap();
        receive(stream).status
    };
    for fine in [
        "Host: a\r\n",
        "Host: 127.0.0.1:8000\r\n",
        "Host: [::1]:80\r\n",
        "Host:\r\n",
    ] {
        assert_eq!(ask(fine), 200, "{fine}");
    }
    for wrong in [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host: a/../b\r\n",
        "Host: a b\r\n",
        "Host: a@b\r\n",
    ] {
        assert_eq!(ask(wrong), 400, "{wrong}");
    }
}

#[test]
fn a_large_head_is_refused() {
    let server = Server::start();
    let headers = format!("X-Large: {}\r\n", "x".repeat(64 << 10));
    let status = receive(send(server.address, "GET", "/version", &headers, b"")).status;
    assert_eq!(status, 431);
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    let status = receive(send(server.address, "GET", "/version", &many, b"")).status;
    assert_eq!(status, 431);
    assert_eq!(server.get("/version").status, 200);
}

#[test]
fn ids_come_back_in_a_header() {
    let server = Server::start();
    let response = receive(send(
        server.address,
        "GET",
        "/version",
        "X-Request-Id: abc\r\n",
        b"",
    ));
    assert!(response.head.contains("x-request-id: abc"), "{response:?}");
    assert!(server.get("/version").head.contains("x-request-id: "));
    let answer = server.complete(json!({"prompt": "a", "max_tokens": 1, "request_id": "mine"}));
    assert_eq!(answer["id"], "cmpl-mine");
}

#[test]
fn requests_that_take_too_long_are_given_up() {
    let server = Server::with(Setup {
        options: AppOptions {
            request_timeout: Some(Duration::from_millis(100)),
            ..options()
        },
        hook: Box::new(|_| {
            std::thread::sleep(Duration::from_millis(10));
            MockStep::Run
        }),
        ..Setup::default()
    });
    let response = server.post("/v1/completions", r#"{"prompt": "a", "max_tokens": 200}"#);
    assert_eq!(
        response.error(),
        "504 TimeoutError -: the answer was not ready in the time that a request may take"
    );
    server.complete(json!({"prompt": "a", "max_tokens": 1}));
}
