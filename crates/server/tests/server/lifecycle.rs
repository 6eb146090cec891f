//! Clients that leave, queues that are full, engines that die, servers that are told to stop.

use crate::client::{PATIENCE, receive, send};
use crate::server::{Server, Setup};
use mettle_engine::mock::MockStep;
use serde_json::json;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const JSON: &str = "Content-Type: application/json\r\n";

/// A server whose steps take so long that a client can leave in the middle.
fn slow(step: Duration, max_queue: usize) -> Server {
    Server::with(Setup {
        max_queue,
        hook: Box::new(move |_| {
            std::thread::sleep(step);
            MockStep::Run
        }),
        ..Setup::default()
    })
}

fn ask(server: &Server, max_tokens: usize) -> TcpStream {
    let body = json!({"prompt": [1, 2], "max_tokens": max_tokens}).to_string();
    send(
        server.address,
        "POST",
        "/v1/completions",
        JSON,
        body.as_bytes(),
    )
}

fn wait_until_running(server: &Server) {
    let start = Instant::now();
    while server.engine.stats().running == 0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_client_that_leaves_aborts_its_request() {
    let server = slow(Duration::from_millis(10), 64);
    let client = ask(&server, 250);
    wait_until_running(&server);
    drop(client);
    server.wait_until_idle();
    let made = server.engine.stats().generated_tokens;
    assert!(made < 200, "{made} tokens were made for nobody");
    server.complete(json!({"prompt": "a", "max_tokens": 1}));
}

#[test]
fn a_full_queue_turns_clients_away_at_once() {
    let server = slow(Duration::from_millis(10), 0);
    let first = ask(&server, 250);
    wait_until_running(&server);
    let second = receive(ask(&server, 1));
    assert!(second.head.contains("retry-after: 1"), "{second:?}");
    assert_eq!(
        second.error(),
        "429 RateLimitError -: the queue is full: 1 requests are running or waiting, the limit is 1"
    );
    drop(first);
    server.wait_until_idle();
    // One caller with many prompts waits for itself.
    let many = server.complete(json!({"prompt": vec!["a"; 5], "max_tokens": 1}));
    assert_eq!(many["choices"].as_array().unwrap().len(), 5);
}

#[test]
fn a_failing_device_is_an_internal_error_without_details() {
    let server = Server::with(Setup {
        hook: Box::new(|_| MockStep::Fail("/secret/path".into())),
        ..Setup::default()
    });
    assert_eq!(
        receive(ask(&server, 1)).error(),
        "500 InternalServerError -: the engine failed on this request"
    );
    // What the device holds now is unknown.
    assert_eq!(receive(ask(&server, 1)).status, 503);
}

#[test]
fn broken_logits_fail_one_request_and_no_other() {
    let server = Server::with(Setup {
        hook: Box::new(|step| match step {
            0 => MockStep::NotANumber,
            _ => MockStep::Run,
        }),
        ..Setup::default()
    });
    assert_eq!(
        receive(ask(&server, 1)).error(),
        "500 InternalServerError -: the engine failed on this request"
    );
    assert_eq!(receive(ask(&server, 1)).status, 200);
}

#[test]
fn a_dead_engine_is_unhealthy_and_does_not_say_what_it_died_of() {
    let server = Server::with(Setup {
        hook: Box::new(|step| panic!("part of the test: /secret/path, step {step}")),
        ..Setup::default()
    });
    assert_eq!(
        receive(ask(&server, 1)).error(),
        "500 InternalServerError -: the engine failed on this request"
    );
    let start = Instant::now();
    while server.engine.is_alive() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    let health = server.get("/health");
    assert!(health.head.contains("retry-after"));
    assert_eq!(health.status, 503);
    assert_eq!(
        receive(ask(&server, 1)).error(),
        "503 ServiceUnavailableError -: the engine has stopped"
    );
}

#[test]
fn a_stopping_server_lets_requests_end_and_takes_no_new_ones() {
    let mut server = slow(Duration::from_millis(10), 64);
    let client = ask(&server, 30);
    wait_until_running(&server);
    server.stop.take().unwrap().send(()).unwrap();
    let answer = receive(client);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["usage"]["completion_tokens"], 30);
    let ended = server.ended.lock().unwrap();
    ended.recv_timeout(PATIENCE).expect("the server ends");
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn requests_that_outlast_the_drain_are_cut_off_and_aborted() {
    let mut server = Server::with(Setup {
        drain: Duration::from_millis(100),
        hook: Box::new(|_| {
            std::thread::sleep(Duration::from_millis(50));
            MockStep::Run
        }),
        ..Setup::default()
    });
    let client = ask(&server, 250);
    wait_until_running(&server);
    server.stop.take().unwrap().send(()).unwrap();
    let ended = server.ended.lock().unwrap();
    ended.recv_timeout(PATIENCE).expect("the server ends");
    server.wait_until_idle();
    let made = server.engine.stats().generated_tokens;
    assert!(made < 200, "{made} tokens were made for nobody");
    drop(client);
}
