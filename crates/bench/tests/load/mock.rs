//! Owns a server that behaves as it is told: well, or badly in one of the ways that servers do.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behaviour {
    Fine,
    /// Token counts only in the last chunk.
    UsageAtEnd,
    /// No token counts at all.
    NoUsage,
    /// Two tokens in each chunk.
    Pairs,
    Busy,
    Broken,
    ErrorInside,
    /// Silent after the first token.
    Stall,
    /// Closes after the first token.
    Disconnect,
    /// Closes before the head.
    HangUp,
    Malformed,
    /// Ends without a token.
    Empty,
}

#[derive(Clone, Copy, Debug)]
pub struct Mock {
    /// For each measured request, by its number.
    pub behaviour: fn(usize) -> Behaviour,
    pub takes_ids: bool,
    pub tokenizes: bool,
    pub first_token: Duration,
    pub token_gap: Duration,
}

impl Default for Mock {
    fn default() -> Mock {
        Mock {
            behaviour: |_| Behaviour::Fine,
            takes_ids: true,
            tokenizes: true,
            first_token: Duration::from_millis(20),
            token_gap: Duration::from_millis(10),
        }
    }
}

/// A mock that runs, and what it saw.
pub struct Running {
    pub url: String,
    pub seen: Arc<Seen>,
}

#[derive(Default)]
pub struct Seen {
    /// Bodies of measured requests.
    pub bodies: Mutex<Vec<Value>>,
    pub now: AtomicUsize,
    pub most_at_once: AtomicUsize,
    pub keys: Mutex<Vec<String>>,
}

impl Mock {
    pub async fn start(self) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Seen::default());
        let shared = seen.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // Who hangs up on the mock is no concern of it.
                tokio::spawn(self.answer(stream, shared.clone()));
            }
        });
        Running { url, seen }
    }

    async fn answer(self, stream: TcpStream, seen: Arc<Seen>) -> std::io::Result<()> {
        let (reader, mut out) = stream.into_split();
        let Some((path, body)) = request(BufReader::new(reader), &seen).await? else {
            return Ok(());
        };
        match path.as_str() {
            "/v1/models" => {
                let list = json!({ "data": [{ "id": "mock", "max_model_len": 1000 }] });
                whole(&mut out, 200, &list).await
            }
            "/metrics" => {
                let running = seen.now.load(Ordering::SeqCst);
                let text = format!(
                    "vllm:num_requests_running{{}} {running}\nvllm:num_requests_waiting{{}} 0\n"
                );
                raw(&mut out, 200, &text).await
            }
            "/tokenize" if self.tokenizes => {
                let words = body["prompt"]
                    .as_str()
                    .unwrap_or_default()
                    .split_whitespace();
                let ids: Vec<usize> = words.enumerate().map(|(n, w)| n % 90 + w.len()).collect();
                whole(&mut out, 200, &json!({ "tokens": ids })).await
            }
            "/v1/completions" | "/v1/chat/completions" => self.complete(out, body, &seen).await,
            _ => {
                whole(
                    &mut out,
                    404,
                    &json!({ "error": { "message": "no such page" } }),
                )
                .await
            }
        }
    }

    async fn complete(
        self,
        mut out: OwnedWriteHalf,
        body: Value,
        seen: &Seen,
    ) -> std::io::Result<()> {
        let input = match (&body["prompt"], &body["messages"]) {
            (Value::Array(_), _) if !self.takes_ids => {
                let error = json!({ "error": { "message": "prompt must be a string" } });
                return whole(&mut out, 400, &error).await;
            }
            (Value::Array(ids), _) => ids.len(),
            (Value::String(text), _) => 1 + 2 * text.split_whitespace().count(),
            (_, messages) => {
                let text = messages[0]["content"].as_str().unwrap_or_default();
                7 + text.split_whitespace().count()
            }
        };
        if body["stream"] != true {
            let usage = json!({ "usage": { "prompt_tokens": input, "completion_tokens": 1 } });
            return whole(&mut out, 200, &usage).await;
        }
        let number = {
            let mut bodies = seen.bodies.lock().await;
            bodies.push(body.clone());
            bodies.len() - 1
        };
        let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_at_once.fetch_max(now, Ordering::SeqCst);
        let output = body["max_tokens"].as_u64().unwrap() as usize;
        let outcome = self
            .stream(out, (self.behaviour)(number), input, output)
            .await;
        seen.now.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    async fn stream(
        self,
        mut out: OwnedWriteHalf,
        behaviour: Behaviour,
        input: usize,
        output: usize,
    ) -> std::io::Result<()> {
        match behaviour {
            Behaviour::Busy => {
                let error = json!({ "error": { "message": "the queue is full" } });
                return whole(&mut out, 429, &error).await;
            }
            Behaviour::Broken => return raw(&mut out, 500, "<h1>oh no</h1>").await,
            Behaviour::HangUp => return Ok(()),
            _ => {}
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        out.write_all(head.as_bytes()).await?;
        tokio::time::sleep(self.first_token).await;
        let step = if behaviour == Behaviour::Pairs { 2 } else { 1 };
        let mut made = 0;
        while made < output && behaviour != Behaviour::Empty {
            if made > 0 {
                match behaviour {
                    Behaviour::Disconnect => return Ok(()),
                    Behaviour::Stall => tokio::time::sleep(Duration::from_secs(60)).await,
                    Behaviour::Malformed => event(&mut out, "{\"choices\":[").await?,
                    Behaviour::ErrorInside => {
                        event(&mut out, "{\"error\":{\"message\":\"out of luck\"}}").await?;
                        event(&mut out, "[DONE]").await?;
                        return out.write_all(b"0\r\n\r\n").await;
                    }
                    _ => {}
                }
                tokio::time::sleep(self.token_gap).await;
            }
            made = (made + step).min(output);
            let mut chunk =
                json!({ "choices": [{ "text": " word", "delta": { "content": " word" } }] });
            if made == output {
                chunk["choices"][0]["finish_reason"] = json!("length");
            }
            if !matches!(behaviour, Behaviour::NoUsage | Behaviour::UsageAtEnd) {
                chunk["usage"] = usage(input, made);
            }
            event(&mut out, &chunk.to_string()).await?;
        }
        if behaviour != Behaviour::NoUsage {
            let last = json!({ "choices": [], "usage": usage(input, made) });
            event(&mut out, &last.to_string()).await?;
        }
        event(&mut out, "[DONE]").await?;
        out.write_all(b"0\r\n\r\n").await
    }
}

fn usage(input: usize, output: usize) -> Value {
    json!({
        "prompt_tokens": input,
        "completion_tokens": output,
        "prompt_tokens_details": { "cached_tokens": 3 },
    })
}

async fn request(
    mut reader: BufReader<OwnedReadHalf>,
    seen: &Seen,
) -> std::io::Result<Option<(String, Value)>> {
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let Some(path) = line.split(' ').nth(1).map(str::to_owned) else {
        return Ok(None);
    };
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).await?;
        let header = line.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let Some(value) = header.strip_prefix("authorization:") {
            seen.keys.lock().await.push(value.trim().to_owned());
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    Ok(Some((
        path,
        serde_json::from_slice(&body).unwrap_or_default(),
    )))
}

async fn whole(out: &mut OwnedWriteHalf, status: u16, body: &Value) -> std::io::Result<()> {
    raw(out, status, &body.to_string()).await
}

async fn raw(out: &mut OwnedWriteHalf, status: u16, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
    out.write_all(text.as_bytes()).await
}

/// One event in two chunks, so that no reader can take a chunk for an event.
async fn event(out: &mut OwnedWriteHalf, data: &str) -> std::io::Result<()> {
    let text = format!("data: {data}\n\n");
    let (first, second) = text.split_at(text.len() / 2);
    for part in [first, second] {
        let chunk = format!("{:x}\r\n{part}\r\n", part.len());
        out.write_all(chunk.as_bytes()).await?;
    }
    out.flush().await
}
