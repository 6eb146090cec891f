//! Owns server-sent events: a response whose events leave one by one, written by a future that lives in its body. Who
//! drops the body, because the client is gone, drops the future and with it all it holds.

use crate::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde::Serialize;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

/// Events that may wait for a slow reader; more wait in the engine, which holds at most one answer.
const QUEUE: usize = 16;
/// A silence after which a comment shows proxies that somebody is there.
const SILENCE: Duration = Duration::from_secs(15);

/// Where a stream's future writes its events.
pub struct Events(mpsc::Sender<Bytes>);

impl Events {
    /// An event without a name.
    pub async fn data(&self, value: &impl Serialize) {
        self.send(format!("data: {}\n\n", json(value))).await;
    }

    pub async fn named(&self, name: &str, value: &impl Serialize) {
        self.send(format!("event: {name}\ndata: {}\n\n", json(value)))
            .await;
    }

    /// The end of a stream, after an error where there was one.
    pub async fn done(&self, outcome: Result<(), ApiError>) {
        if let Err(error) = outcome {
            self.data(&error.body()).await;
        }
        self.send("data: [DONE]\n\n".to_owned()).await;
    }

    async fn send(&self, text: String) {
        // The reading end lives as long as the future that writes.
        let _ = self.0.send(text.into()).await;
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("keys are strings and numbers are finite")
}

/// A response of events that `write` makes.
pub fn respond<F>(write: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(QUEUE);
    let stream = EventStream {
        writing: Some(Box::pin(write(Events(sender)))),
        events: receiver,
        silence: Box::pin(sleep(SILENCE)),
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        // Asks a proxy not to gather events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(stream)).into_response()
}

struct EventStream {
    /// `None` once it has ended.
    writing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    events: mpsc::Receiver<Bytes>,
    silence: Pin<Box<Sleep>>,
}

impl Stream for EventStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(writing) = &mut self.writing
            && writing.as_mut().poll(context).is_ready()
        {
            self.writing = None;
        }
        if let Poll::Ready(event) = self.events.poll_recv(context) {
            let next = tokio::time::Instant::now() + SILENCE;
            self.silence.as_mut().reset(next);
            return Poll::Ready(event.map(Ok));
        }
        if self.silence.as_mut().poll(context).is_ready() {
            let next = tokio::time::Instant::now() + SILENCE;
            self.silence.as_mut().reset(next);
            return Poll::Ready(Some(Ok(Bytes::from_static(b": still here\n\n"))));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn events_leave_one_by_one_and_silence_is_broken() {
        let response = respond(|events| async move {
            events.data(&1).await;
            sleep(SILENCE * 2 + Duration::from_secs(1)).await;
            events.named("end", &"x").await;
            events.done(Err(ApiError::engine_failed())).await;
        });
        let mut stream = Box::pin(response.into_body().into_data_stream());
        let mut seen = Vec::new();
        while let Some(event) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
            seen.push(String::from_utf8(event.unwrap().to_vec()).unwrap());
        }
        let error = "data: {\"error\":{\"message\":\"the engine failed on this request\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n";
        assert_eq!(
            seen,
            [
                "data: 1\n\n",
                ": still here\n\n",
                ": still here\n\n",
                "event: end\ndata: \"x\"\n\n",
                error,
                "data: [DONE]\n\n"
            ]
        );
    }

    #[tokio::test]
    async fn who_drops_the_body_drops_the_writer() {
        let held = std::sync::Arc::new(());
        let inside = held.clone();
        let response = respond(|events| async move {
            let _inside = inside;
            loop {
                events.data(&1).await;
            }
        });
        let mut stream = Box::pin(response.into_body().into_data_stream());
        poll_fn(|context| stream.as_mut().poll_next(context)).await;
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        drop(stream);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
