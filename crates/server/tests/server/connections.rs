//! Connections that say nothing, too little or too slowly, and too many of them.

use crate::client::{PATIENCE, connect, receive, send};
use crate::server::{NAME, Server, Setup};
use mettle_engine::mock::MockStep;
use mettle_server::AppOptions;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const JSON: &str = "Content-Type: application/json\r\n";
const KEPT_ALIVE: &[u8] = b"GET /version HTTP/1.1\r\nHost: test\r\n\r\n";

fn server(max_connections: usize, head_timeout: Duration) -> Server {
    Server::with(Setup {
        options: AppOptions {
            max_connections,
            head_timeout,
            ..AppOptions::new(NAME)
        },
        hook: Box::new(|_| {
            std::thread::sleep(Duration::from_millis(20));
            MockStep::Run
        }),
        max_sequences: 3,
        ..Setup::default()
    })
}

/// Reads until the server closes the connection; panics where it does not.
fn read_to_close(mut stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // Closed while bytes of ours were under way.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection stays open: {error}"),
    }
    String::from_utf8(bytes).unwrap()
}

/// Reads until the text ends in `mark`.
fn read_until(mut stream: &TcpStream, mark: &str) -> String {
    let mut seen = String::new();
    while !seen.ends_with(mark) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        seen.push(char::from(byte[0]));
    }
    seen
}

/// Asks on a connection that stays open afterwards.
fn ask_and_stay(mut stream: &TcpStream) {
    stream.write_all(KEPT_ALIVE).unwrap();
    assert!(read_until(stream, "}").starts_with("HTTP/1.1 200"));
}

#[test]
fn connections_that_do_not_send_a_request_in_time_are_closed() {
    let server = server(100, Duration::from_millis(300));
    let silent = connect(server.address);
    let mut half = connect(server.address);
    half.write_all(b"GET /version HTTP/1.1\r\nHo").unwrap();
    let idle = connect(server.address);
    ask_and_stay(&idle);
    for stream in [&silent, &half, &idle] {
        read_to_close(stream);
    }
    // A byte now and then is no excuse.
    let mut slow = connect(server.address);
    let start = Instant::now();
    while slow.write_all(b"G").is_ok() {
        assert!(start.elapsed() < PATIENCE, "the connection stays open");
        std::thread::sleep(Duration::from_millis(30));
    }
    // The time is for asking, not for answering.
    let answer = server.complete(json!({"prompt": [1, 2], "max_tokens": 30}));
    assert_eq!(answer["usage"]["completion_tokens"], 30);
}

/// Asks for an answer that takes seconds and reads until its first token.
fn begin_long_answer(server: &Server) -> TcpStream {
    let body = json!({"prompt": [1, 2], "max_tokens": 200, "ignore_eos": true, "stream": true})
        .to_string();
    let stream = send(
        server.address,
        "POST",
        "/v1/completions",
        JSON,
        body.as_bytes(),
    );
    read_until(&stream, "data:");
    stream
}

#[test]
fn at_the_limit_who_was_silent_longest_gives_way() {
    let server = server(3, PATIENCE);
    let answered = begin_long_answer(&server);
    let (first, second) = (connect(server.address), connect(server.address));
    ask_and_stay(&first);
    ask_and_stay(&second);
    // The first has spoken last now; nobody gives way as long as there is no fourth.
    ask_and_stay(&first);
    ask_and_stay(&second);
    ask_and_stay(&first);
    assert_eq!(server.get("/version").status, 200);
    assert_eq!(
        read_to_close(&second).lines().next(),
        None,
        "the second is closed and was told nothing more"
    );
    // The place of the one that asked is free again.
    ask_and_stay(&first);
    assert!(read_to_close(&answered).contains("[DONE]"));
}

#[test]
fn half_a_request_gives_way_too() {
    let server = server(2, PATIENCE);
    let mut head = connect(server.address);
    head.write_all(b"GET /version HTTP/1.1\r\nHo").unwrap();
    let mut body = connect(server.address);
    let half =
        format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 50\r\n\r\n{{");
    body.write_all(half.as_bytes()).unwrap();
    let mut others = Vec::new();
    for silent in [&head, &body] {
        assert_eq!(server.get("/version").status, 200);
        read_to_close(silent);
        // Takes the place that is free now.
        others.push(connect(server.address));
        ask_and_stay(&others[others.len() - 1]);
    }
}

#[test]
fn where_all_are_being_answered_one_more_waits() {
    let server = server(3, PATIENCE);
    let mut open: Vec<_> = (0..3).map(|_| begin_long_answer(&server)).collect();
    let mut waiting = send(server.address, "GET", "/version", "", b"");
    waiting
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let refused = waiting.read(&mut [0; 1]).map_err(|e| e.kind());
    assert!(refused.is_err(), "answered beyond the limit: {refused:?}");
    drop(open.pop());
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(receive(waiting).status, 200);
    // The place is free again.
    assert_eq!(server.get("/version").status, 200);
}

#[test]
fn a_crowd_of_silent_connections_keeps_nobody_waiting() {
    let server = server(20, PATIENCE);
    let mut crowd = Vec::new();
    for _ in 0..30 {
        crowd.extend((0..10).map(|_| connect(server.address)));
        let start = Instant::now();
        assert_eq!(server.get("/version").status, 200);
        assert!(start.elapsed() < PATIENCE / 4);
    }
}

#[test]
fn a_stopping_server_does_not_wait_for_idle_connections() {
    let mut server = server(100, Duration::from_secs(600));
    let (silent, idle) = (connect(server.address), connect(server.address));
    ask_and_stay(&idle);
    server.stop.take().unwrap().send(()).unwrap();
    let ended = server.ended.lock().unwrap();
    let in_time = PATIENCE / 2;
    ended.recv_timeout(in_time).expect("the server ends");
    for stream in [&silent, &idle] {
        read_to_close(stream);
    }
}
