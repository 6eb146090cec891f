//! Owns what a connection is doing: being waited for, or being answered.

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::Response;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::Notify;

/// One connection's. It is waited for from the moment it is accepted, and again from the end of an answer, until a whole
/// request has come.
#[derive(Debug)]
pub struct Activity {
    /// Nanoseconds from the server's start; 0 while a request is answered.
    waited_for_since: AtomicU64,
    start: Instant,
    /// Told when an answer ends.
    answered: Arc<Notify>,
}

impl Activity {
    pub fn new(start: Instant, answered: Arc<Notify>) -> Activity {
        let activity = Activity {
            waited_for_since: AtomicU64::new(0),
            start,
            answered,
        };
        activity.wait();
        activity
    }

    /// Since when the client is waited for, where it is.
    pub fn waited_for_since(&self) -> Option<u64> {
        Some(self.waited_for_since.load(Relaxed)).filter(|since| *since > 0)
    }

    fn wait(&self) {
        let now = self.start.elapsed().as_nanos() as u64;
        self.waited_for_since.store(now.max(1), Relaxed);
    }

    /// Answers one request and notes its stages.
    pub async fn answer<B>(
        self: Arc<Self>,
        mut routes: Router,
        request: Request<B>,
    ) -> Result<Response<Body>, Infallible>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let whole = Stage(self.clone(), |activity| {
            activity.waited_for_since.store(0, Relaxed);
        });
        let answered = Stage(self, |activity| {
            activity.wait();
            activity.answered.notify_one();
        });
        let request = request.map(|body| Body::new(Staged(body, whole)));
        let response = tower_service::Service::call(&mut routes, request).await?;
        Ok(response.map(|body| Body::new(Staged(body, answered))))
    }
}

/// Ends a stage when it is dropped, however that comes.
struct Stage(Arc<Activity>, fn(&Activity));

impl Drop for Stage {
    fn drop(&mut self) {
        (self.1)(&self.0);
    }
}

/// A body whose end, or being given up, ends a stage.
struct Staged<B>(B, #[expect(dead_code, reason = "held for its drop")] Stage);

impl<B: HttpBody + Unpin> HttpBody for Staged<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}
