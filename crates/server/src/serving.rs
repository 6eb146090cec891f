//! Owns the life of the server: accepting connections, and letting requests end before it does.

use crate::app::App;
use crate::routes::router;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Serves until `stop` is done, then takes no new connection and waits up to `drain` for the requests under way.
/// The engine is left running; requests cut off here are aborted by it.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    stop: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let (stopped, stopping) = oneshot::channel::<()>();
    let draining = app.clone();
    let graceful = async move {
        stop.await;
        draining.drain();
        // The other end is gone only when the server has ended already.
        let _ = stopped.send(());
    };
    let server = axum::serve(listener, router(app)).with_graceful_shutdown(graceful);
    let too_late = async move {
        let _ = stopping.await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        ended = server => ended,
        () = too_late => Ok(()),
    }
}
