//! Owns the life of the server: accepting connections, closing those that say nothing, and letting requests end before
//! it does.

use crate::activity::Activity;
use crate::app::App;
use crate::connections::Connections;
use crate::patient::Patient;
use crate::routes::router;
use axum::Router;
use axum::serve::Listener;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// How long a connection that was told to leave may take to send what is left of its answer.
const LEAVING: Duration = Duration::from_secs(1);

/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 32 << 10;

/// Serves until `stop` is done, then takes no new connection and waits up to `drain` for the requests under way.
/// The engine is left running; requests cut off here are aborted by it.
pub async fn serve(
    mut listener: TcpListener,
    app: Arc<App>,
    stop: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let routes = router(app.clone());
    // http1_only: else the wait for a connection's first bytes, which tell the version, has no limit.
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        // A larger head is answered with 431.
        .max_buf_size(MAX_HEAD)
        .header_read_timeout(app.options.head_timeout);
    let (stopping, stopped) = watch::channel(());
    let mut connections = Connections::new(app.options.max_connections);
    let mut stop = pin!(stop);
    // Accepted, and without a place yet.
    let mut next: Option<TcpStream> = None;
    loop {
        if let Some(stream) = next.take_if(|_| connections.has_room()) {
            connections.add(|activity, leave| {
                let stream = Patient::new(stream, app.options.write_timeout);
                converse(
                    stream,
                    builder.clone(),
                    routes.clone(),
                    activity,
                    leave,
                    stopped.clone(),
                )
            });
        }
        tokio::select! {
            () = &mut stop => break,
            // The listener itself waits and tries again where the system has no file left for it.
            (stream, _) = Listener::accept(&mut listener), if next.is_none() => next = Some(stream),
            () = connections.changed() => {}
        }
    }
    app.drain();
    drop((listener, next, stopping));
    // An error means that the time is over.
    let _ = tokio::time::timeout(drain, connections.all_ended()).await;
    Ok(())
}

/// Answers the requests of one connection until it ends, is told to leave, or the server stops (`stopping` is closed); the
/// request under way is answered first. How a connection ends is its client's business.
async fn converse(
    stream: Patient,
    builder: Builder<TokioExecutor>,
    routes: Router,
    activity: Arc<Activity>,
    leave: Arc<Notify>,
    mut stopping: watch::Receiver<()>,
) {
    let answer = {
        let activity = activity.clone();
        service_fn(move |request| activity.clone().answer(routes.clone(), request))
    };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = leave.notified() => {
            connection.as_mut().graceful_shutdown();
            // What is left then is a client that has sent half a request, or does not read its answer.
            while timeout(LEAVING, connection.as_mut()).await.is_err()
                && activity.waited_for_since().is_none() {}
            return;
        }
        _ = stopping.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
