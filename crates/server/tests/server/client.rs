//! Owns the smallest HTTP client: one request a connection, with a limit on how long it waits.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// `status type param: message`.
    pub fn error(&self) -> String {
        let error = &self.json()["error"];
        assert_eq!(error["code"], self.status, "{self:?}");
        let param = error["param"].as_str().unwrap_or("-");
        let text = |key: &str| error[key].as_str().expect("a string").to_owned();
        format!(
            "{} {} {param}: {}",
            self.status,
            text("type"),
            text("message")
        )
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Writes a request and leaves the connection open.
pub fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> TcpStream {
    let mut stream = connect(address);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that has answered already may have closed its side.
    let _ = stream.write_all(body);
    stream
}

pub fn receive(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if bytes.is_empty() => panic!("no answer: {error}"),
            Err(_) => break,
        }
    }
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status");
    let head = head.to_ascii_lowercase();
    let body = match head.contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_owned(),
    };
    Response {
        status: status.parse().expect("a number"),
        head,
        body,
    }
}

pub fn get(address: SocketAddr, path: &str) -> Response {
    receive(send(address, "GET", path, "", b""))
}

pub fn post(address: SocketAddr, path: &str, body: &str) -> Response {
    let headers = "Content-Type: application/json\r\n";
    receive(send(address, "POST", path, headers, body.as_bytes()))
}

/// A body that came in chunks; what is missing of the last one is left out.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        let Some(chunk) = rest.get(..size).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        whole.push_str(chunk);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// Names (empty without one) and data of server-sent events.
pub fn events(body: &str) -> Vec<(String, String)> {
    let mut events = Vec::new();
    for event in body.split_terminator("\n\n") {
        let field = |name: &str| {
            let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
            event.lines().find_map(of)
        };
        if event.starts_with(':') {
            continue;
        }
        events.push((
            field("event").unwrap_or_default(),
            field("data").expect("data"),
        ));
    }
    events
}
