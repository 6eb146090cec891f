//! Owns one measured request: the JSON that asks, and the times at which the streamed answer arrives.

use super::dataset::Prompt;
use super::http::{Client, disconnected, error_message, refusal};
use super::material::Content;
use super::outcome::{Failure, FailureKind, Outcome};
use super::sse::EventReader;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Completions,
    Chat,
}

impl Endpoint {
    pub fn path(self) -> &'static str {
        match self {
            Endpoint::Completions => "/v1/completions",
            Endpoint::Chat => "/v1/chat/completions",
        }
    }
}

/// What all requests of a run share.
#[derive(Clone, Debug)]
pub struct RequestOptions {
    pub endpoint: Endpoint,
    pub model: String,
    /// Answers go on to their full length.
    pub ignore_eos: bool,
    pub temperature: f64,
    pub timeout: Duration,
    /// Prompts of one salt do not find those of another in a prefix cache.
    pub cache_salt: String,
}

impl RequestOptions {
    /// The request on the wire.
    pub fn body(&self, content: &Content, output_len: usize, stream: bool) -> Vec<u8> {
        let mut body = json!({
            "model": self.model,
            "max_tokens": output_len,
            "temperature": self.temperature,
            "cache_salt": self.cache_salt,
        });
        match (self.endpoint, content) {
            (Endpoint::Completions, Content::Ids(ids)) => body["prompt"] = json!(ids),
            (Endpoint::Completions, Content::Text(text)) => body["prompt"] = json!(text),
            (Endpoint::Chat, Content::Text(text)) => {
                body["messages"] = json!([{ "role": "user", "content": text }]);
            }
            (Endpoint::Chat, Content::Ids(_)) => unreachable!("chats are made of text"),
        }
        if self.ignore_eos {
            body["ignore_eos"] = json!(true);
            // An end token that does not end an answer must not be invisible either: each token is to be seen arriving.
            body["skip_special_tokens"] = json!(false);
        }
        if stream {
            body["stream"] = json!(true);
            body["stream_options"] =
                json!({ "include_usage": true, "continuous_usage_stats": true });
        }
        body.to_string().into_bytes()
    }
}

/// Sends one prompt and follows its answer to the end. Times count from the moment before the connection is made.
pub async fn exchange(
    client: &Client,
    options: &RequestOptions,
    prompt: &Prompt,
    run_start: Instant,
) -> Outcome {
    let body = options.body(&prompt.content, prompt.output_len, true);
    let start = Instant::now();
    let mut answer = StreamedAnswer::new(start);
    let following = follow(client, options, body, &mut answer);
    let failure = match tokio::time::timeout(options.timeout, following).await {
        Ok(outcome) => outcome.err(),
        Err(_) => {
            let limit = options.timeout.as_secs_f64();
            Some(Failure::new(
                FailureKind::Timeout,
                format!("no end after {limit} s"),
            ))
        }
    };
    let mut outcome = answer.into_outcome(failure, prompt.input_len);
    outcome.sent = (start - run_start).as_secs_f64();
    outcome
}

async fn follow(
    client: &Client,
    options: &RequestOptions,
    body: Vec<u8>,
    answer: &mut StreamedAnswer,
) -> Result<(), Failure> {
    let path = options.endpoint.path();
    let response = client.send(Method::POST, path, body).await?;
    let status = response.status();
    let mut body = response.into_body();
    if !status.is_success() {
        let text = body.collect().await.map_err(disconnected)?.to_bytes();
        return Err(refusal(status, &text));
    }
    let mut reader = EventReader::default();
    let mut events = Vec::new();
    while !answer.is_done {
        let Some(piece) = next_piece(&mut body).await? else {
            break;
        };
        // One clock reading a piece: events that arrive together arrived together.
        let now = Instant::now();
        reader
            .push(&piece, &mut events)
            .map_err(|error| Failure::new(FailureKind::Malformed, error.to_string()))?;
        for event in events.drain(..) {
            answer.take(&event, now)?;
        }
    }
    answer.check_end()
}

async fn next_piece(body: &mut Incoming) -> Result<Option<hyper::body::Bytes>, Failure> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(disconnected(error)),
            Some(Ok(frame)) => {
                // Trailers are no data.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<ChunkChoice>,
    usage: Option<ChunkUsage>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    text: Option<String>,
    delta: Option<Value>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ChunkUsage {
    #[serde(default)]
    prompt_tokens: usize,
    #[serde(default)]
    completion_tokens: usize,
    prompt_tokens_details: Option<ChunkDetails>,
}

#[derive(Deserialize)]
struct ChunkDetails {
    cached_tokens: Option<usize>,
}

/// An answer while it comes in.
struct StreamedAnswer {
    start: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    gaps: Vec<f64>,
    /// As the server counts them; `None` before it does.
    counted_tokens: Option<usize>,
    input_tokens: Option<usize>,
    cached_tokens: usize,
    token_events: usize,
    is_finished: bool,
    is_done: bool,
}

impl StreamedAnswer {
    fn new(start: Instant) -> StreamedAnswer {
        StreamedAnswer {
            start,
            first: None,
            last: None,
            gaps: Vec::new(),
            counted_tokens: None,
            input_tokens: None,
            cached_tokens: 0,
            token_events: 0,
            is_finished: false,
            is_done: false,
        }
    }

    fn take(&mut self, event: &str, now: Instant) -> Result<(), Failure> {
        if event == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let malformed = |error: serde_json::Error| {
            Failure::new(FailureKind::Malformed, format!("an event: {error}"))
        };
        let value: Value = serde_json::from_str(event).map_err(malformed)?;
        if value.get("error").is_some_and(|error| !error.is_null()) {
            let message = error_message(&value).unwrap_or_default();
            return Err(Failure::new(FailureKind::ServerError, message));
        }
        let chunk: Chunk = serde_json::from_value(value).map_err(malformed)?;
        let before = self.counted_tokens;
        if let Some(usage) = &chunk.usage {
            self.counted_tokens = Some(usage.completion_tokens);
            self.input_tokens = Some(usage.prompt_tokens);
            let details = usage.prompt_tokens_details.as_ref();
            self.cached_tokens = details.and_then(|d| d.cached_tokens).unwrap_or(0);
        }
        let Some(choice) = chunk.choices.first() else {
            return Ok(());
        };
        self.is_finished |= choice.finish_reason.is_some();
        // The server's own count says whether a chunk brought tokens; without one, text does.
        let brings_tokens = match (&chunk.usage, before) {
            (Some(usage), before) => usage.completion_tokens > before.unwrap_or(0),
            (None, _) => choice.has_content(),
        };
        if brings_tokens {
            self.token_events += 1;
            match self.last {
                None => self.first = Some(now),
                Some(last) => self.gaps.push((now - last).as_secs_f64()),
            }
            self.last = Some(now);
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), Failure> {
        if !self.is_done && !self.is_finished {
            let message = format!("the stream ended after {} events", self.token_events);
            return Err(Failure::new(FailureKind::Disconnected, message));
        }
        if self.first.is_none() {
            let message = "the answer has no token".to_owned();
            return Err(Failure::new(FailureKind::Malformed, message));
        }
        Ok(())
    }

    fn into_outcome(self, failure: Option<Failure>, expected_input: usize) -> Outcome {
        let since_start = |at: Instant| (at - self.start).as_secs_f64();
        let latency = match failure {
            None => self.last.map(since_start),
            Some(_) => None,
        };
        Outcome {
            sent: 0.0,
            ttft: self.first.map(since_start),
            latency: latency.unwrap_or_else(|| self.start.elapsed().as_secs_f64()),
            gaps: self.gaps,
            input_tokens: self.input_tokens.unwrap_or(expected_input),
            output_tokens: self.counted_tokens.unwrap_or(self.token_events),
            cached_tokens: self.cached_tokens,
            failure,
        }
    }
}

impl ChunkChoice {
    fn has_content(&self) -> bool {
        let fields = ["content", "reasoning", "reasoning_content"];
        let in_delta = |delta: &Value| {
            let says = |name| {
                let text = delta.get(name).and_then(Value::as_str);
                text.is_some_and(|text| !text.is_empty())
            };
            fields.into_iter().any(says) || delta.get("tool_calls").is_some_and(Value::is_array)
        };
        self.text.as_ref().is_some_and(|text| !text.is_empty())
            || self.delta.as_ref().is_some_and(in_delta)
    }
}
