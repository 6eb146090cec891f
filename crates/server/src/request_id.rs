//! Owns the id of a request: the caller's own where it has a plain one, else a random one. It comes back in a header.

use crate::app::App;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

const HEADER: &str = "x-request-id";

/// What a handler knows of its request's id.
#[derive(Clone, Debug)]
pub struct RequestId {
    id: String,
    is_callers: bool,
}

impl RequestId {
    /// The id after its kind: the header's, else the body's, else a random one.
    pub fn with_prefix(&self, prefix: &str, in_body: Option<&str>) -> String {
        let in_body = in_body.filter(|id| !self.is_callers && is_plain(id));
        format!("{prefix}{}", in_body.unwrap_or(&self.id))
    }
}

pub async fn name(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(HEADER);
    let given = given.and_then(|value| value.to_str().ok());
    let given = given.filter(|id| is_plain(id)).map(str::to_owned);
    let id = RequestId {
        is_callers: given.is_some(),
        id: given.unwrap_or_else(|| random(app.next_number())),
    };
    let value = HeaderValue::from_str(&id.id).expect("letters and digits");
    request.extensions_mut().insert(id);
    let mut response = next.run(request).await;
    response.headers_mut().insert(HEADER, value);
    response
}

fn is_plain(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=128).contains(&id.len()) && id.chars().all(allowed)
}

/// 128 random bits: hashers of the standard library have random keys.
pub fn random(number: u64) -> String {
    let (high, low) = (RandomState::new(), RandomState::new());
    format!(
        "{:016x}{:016x}",
        high.hash_one(number),
        low.hash_one(number)
    )
}
