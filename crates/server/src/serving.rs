//! Owns the life of the server: accepting connections, closing those that say nothing, and letting requests end before
//! it does.

use crate::app::App;
use crate::patient::Patient;
use crate::routes::router;
use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

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
    // Cuts the connections off when it is dropped.
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let has_room = connections.len() < app.options.max_connections;
        tokio::select! {
            () = &mut stop => break,
            // The listener itself waits and tries again where the system has no file left for it.
            (stream, _) = Listener::accept(&mut listener), if has_room => {
                connections.spawn(converse(stream, builder.clone(), routes.clone(), app.options.write_timeout, stopped.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    app.drain();
    drop((listener, stopping));
    let all_end = async { while connections.join_next().await.is_some() {} };
    // An error means that the time is over.
    let _ = tokio::time::timeout(drain, all_end).await;
    Ok(())
}

/// Answers the requests of one connection until it ends, or until the server stops (`stopping` is closed) and the
/// request under way is answered. How a connection ends is its client's business.
async fn converse(
    stream: TcpStream,
    builder: Builder<TokioExecutor>,
    routes: Router,
    write_timeout: Duration,
    mut stopping: watch::Receiver<()>,
) {
    // A token is sent when it is made, not when a packet is full. Without it the answer is as right, only later.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(routes);
    let stream = Patient::new(stream, write_timeout);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
