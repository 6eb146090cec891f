//! Owns what became of one request: its times and tokens, or why it failed.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No connection was made.
    Connect,
    /// 429: the server's queue is full.
    Busy,
    /// Another status that is no success.
    Status,
    /// An error event inside the stream.
    ServerError,
    /// The connection ended before the answer did.
    Disconnected,
    /// What came is not what the API says.
    Malformed,
    /// No end within the time limit.
    Timeout,
}

impl FailureKind {
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Connect => "cannot connect",
            FailureKind::Busy => "429 too many requests",
            FailureKind::Status => "refused",
            FailureKind::ServerError => "error inside the stream",
            FailureKind::Disconnected => "disconnected",
            FailureKind::Malformed => "malformed answer",
            FailureKind::Timeout => "timed out",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}: {message}", kind.name())]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
        }
    }
}

/// One request. Times are seconds by a monotonic clock; a failed request keeps what it had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// When it was sent, since the run began.
    pub sent: f64,
    /// From sending to the first token.
    pub ttft: Option<f64>,
    /// From sending to the last token, or to the failure.
    pub latency: f64,
    /// Between events that brought tokens.
    pub gaps: Vec<f64>,
    pub input_tokens: usize,
    pub output_tokens: usize,
    /// Of the input, found in the server's prefix cache.
    pub cached_tokens: usize,
    pub failure: Option<Failure>,
}

impl Outcome {
    pub fn is_success(&self) -> bool {
        self.failure.is_none()
    }

    /// Mean time of a token after the first; `None` where there is none.
    pub fn tpot(&self) -> Option<f64> {
        let ttft = self.ttft.filter(|_| self.output_tokens > 1)?;
        Some((self.latency - ttft) / (self.output_tokens - 1) as f64)
    }
}
