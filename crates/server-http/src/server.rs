//! Connections: accepting them, serving them, and ending them in order.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::Cursor;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kvorum_coordinator::Coordinator;
use kvorum_runtime::{Listener, LogQuota, Room, Runtime, RuntimeError, Stream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{Semaphore, watch};

use crate::dispatch;
use crate::exchange::Service;
use crate::facts::NodeFacts;
use crate::raw_target::RawTargets;
use crate::settings::HttpSettings;

/// Headers of a request; more are answered with 431. Each object's user metadata and indexes come as
/// headers, hence more than a web server needs.
const HEADERS_MAX: usize = 512;

/// Bytes of a request's line and headers; more are answered with 431.
const HEADER_BYTES_MAX: usize = 256 << 10;

/// Time for which a connection may be idle, or take to send the head of a request. Riak's servers
/// waited as long, and the connection pools of its clients count on it.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// The pause after a connection could not be accepted (the process is out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The HTTP interface of a node.
pub struct Server {
    service: Arc<Service>,
    connections: Arc<Semaphore>,
    /// Every connection and listener holds a receiver: when no receiver is left, all have ended.
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// No new connections; each open one ends after its present request.
    Draining,
    /// Connections are dropped.
    Ended,
}

impl Server {
    /// A server over a coordinator.
    pub fn new(
        coordinator: Arc<Coordinator>,
        settings: HttpSettings,
        facts: Arc<dyn NodeFacts>,
    ) -> Self {
        Self::within(Room::default(), coordinator, settings, facts)
    }

    /// A server whose large requests and answers share `room` with those of others.
    pub fn within(
        room: Room,
        coordinator: Arc<Coordinator>,
        settings: HttpSettings,
        facts: Arc<dyn NodeFacts>,
    ) -> Self {
        let visible: String = settings
            .server_header
            .chars()
            .filter(|c| c.is_ascii_graphic() || *c == ' ')
            .collect();
        let server_header =
            HeaderValue::from_str(&visible).unwrap_or(HeaderValue::from_static("-"));
        let connections = Arc::new(Semaphore::new(
            settings.connections_max.min(Semaphore::MAX_PERMITS),
        ));
        let service = Service {
            coordinator,
            settings,
            facts,
            server_header,
            room,
            not_agreed_log: LogQuota::new(),
        };
        Self {
            service: Arc::new(service),
            connections,
            #[expect(
                clippy::disallowed_methods,
                reason = "connections end in any order; no simulation has an HTTP server"
            )]
            phase: watch::Sender::new(Phase::Serving),
        }
    }

    /// Serves the connections of a listener until [`Server::stop`]. May run for several listeners at
    /// once; they share the limit on connections.
    pub async fn serve(&self, listener: Listener) {
        let mut phase = self.phase.subscribe();
        while let Some(permit) = unless(
            &mut phase,
            Phase::Draining,
            self.connections.clone().acquire_owned(),
        )
        .await
        {
            let Some(accepted) = unless(&mut phase, Phase::Draining, listener.accept()).await
            else {
                return;
            };
            let runtime = self.service.coordinator.runtime();
            let stream = match accepted {
                Ok((stream, _peer)) => {
                    // A socket without this option still carries requests.
                    let _ = stream.set_nodelay(true);
                    stream
                }
                Err(error) => {
                    wait_to_accept(runtime, &error).await;
                    continue;
                }
            };
            let (service, phase) = (self.service.clone(), self.phase.subscribe());
            runtime.spawn("http connection", async move {
                converse(stream, service, phase).await;
                drop(permit);
            });
        }
    }

    /// Serves a connection that was accepted before the server existed; `read` has its bytes so far.
    pub(crate) async fn go_on(&self, stream: Stream, read: Bytes) {
        let mut phase = self.phase.subscribe();
        let permit = self.connections.clone().acquire_owned();
        let Some(_permit) = unless(&mut phase, Phase::Draining, permit).await else {
            return;
        };
        let (from_client, to_client) = stream.into_split();
        let stream = tokio::io::join(Cursor::new(read).chain(from_client), to_client);
        converse(stream, self.service.clone(), phase).await;
    }

    /// Stops accepting, lets requests in progress end for at most `grace`, then drops the rest.
    /// Returns when no connection is left.
    pub async fn stop(&self, grace: Duration) {
        self.phase.send_replace(Phase::Draining);
        let runtime = self.service.coordinator.runtime();
        if runtime.timeout(grace, self.phase.closed()).await.is_err() {
            self.phase.send_replace(Phase::Ended);
            self.phase.closed().await;
        }
    }
}

/// Logs that a connection could not be accepted, a few times a minute, and waits for a moment.
pub(crate) async fn wait_to_accept(runtime: &Runtime, error: &RuntimeError) {
    static LOG: LogQuota = LogQuota::new();
    if let Some(left_out) = LOG.take(runtime.now().elapsed()) {
        tracing::warn!(event = "http_accept_failed", error = %error, left_out);
    }
    runtime.sleep(ACCEPT_PAUSE).await;
}

/// Serves one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: Arc<Service>,
    mut phase: watch::Receiver<Phase>,
) {
    let stream = RawTargets::new(stream, service.settings.url_encoding);
    let respond = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(dispatch::respond(&service, request).await) }
    });
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEADER_BYTES_MAX)
        // For clients that compare names as Riak wrote them. Not gathered into fewer writes by
        // `pipeline_flush`: with it, an answer waits while half of the next request has come.
        .title_case_headers(true);
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), respond));
    let mut ended = unless(&mut phase, Phase::Draining, connection.as_mut()).await;
    if ended.is_none() {
        connection.as_mut().graceful_shutdown();
        ended = unless(&mut phase, Phase::Ended, connection).await;
    }
    if let Some(Err(error)) = ended {
        // The client left, or does not speak HTTP: no fault of the server.
        tracing::debug!(event = "http_connection_failed", error = %error);
    }
}

/// The future's result; `None` if the server reaches `end` before.
async fn unless<F: Future>(
    phase: &mut watch::Receiver<Phase>,
    end: Phase,
    future: F,
) -> Option<F::Output> {
    let mut reached = pin!(phase.wait_for(|phase| *phase >= end));
    let mut future = pin!(future);
    poll_fn(|context| {
        if reached.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
