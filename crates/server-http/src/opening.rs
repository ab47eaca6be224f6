//! The listeners' work before there is a server: probes are answered, other requests wait.
//!
//! A node opens its ring and its log before it can serve, which takes a while after a crash. Its sockets are
//! open by then, so that a port in use is found first. An orchestrator without an answer to its
//! liveness probe would end the process, which would begin the same work again. So `/health/live`
//! is answered at once, and `/health/ready` with 503 and the reason `opening`. Any other request
//! waits, and is served on the same connection when the node is open. After its time-out, it gets
//! 503 and the same reason, as do requests beyond [`WAITING_MAX`].
//!
//! One task holds the listener all the time, and then passes it to the server: no connection is
//! refused in between.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::{Either, select};
use kvorum_runtime::{Listener, Runtime, Stream, Watched};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::root::LIVE;
use crate::route::{Probe, Route};
use crate::server::{Server, wait_to_accept};

/// Maximum of connections whose requests wait. Each holds a file descriptor, and stores need some.
const WAITING_MAX: usize = 256;

/// Maximum bytes of a probe's head.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The time that a client has to send its request, and to close after its answer.
const PROBE_TIME: Duration = Duration::from_secs(5);

const OPENING: &str = concat!(
    r#"{"status":"opening","ready":false,"reasons":[{"reason":"opening","#,
    r#""text":"the node opens its ring and its log"}],"#,
    r#""vnodes":{"open":0,"opening":0,"failed":0}}"#
);

/// HTTP listeners of a node that is not open yet.
pub struct Opening {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Runtime,
    server_header: String,
    /// The time that a request waits.
    wait_max: Duration,
    waiting: AtomicUsize,
    server: OnceLock<Arc<Server>>,
    is_open: Watched<bool>,
}

/// The client's request, as far as it has arrived.
enum Asked {
    /// Too few bytes have arrived to decide.
    Unknown,
    Probe {
        probe: Probe,
        with_body: bool,
    },
    Other,
}

impl Opening {
    /// An opening without listeners yet. Requests other than probes wait for `wait_max` at most.
    pub fn new(runtime: Runtime, server_header: impl Into<String>, wait_max: Duration) -> Self {
        let shared = Shared {
            runtime,
            server_header: server_header.into(),
            wait_max,
            waiting: AtomicUsize::new(0),
            server: OnceLock::new(),
            is_open: Watched::new(false),
        };
        let shared = Arc::new(shared);
        Self { shared }
    }

    /// Answers at a listener, which the server takes over at [`Opening::open`].
    pub fn listen(&self, listener: Listener) {
        let shared = self.shared.clone();
        let runtime = &self.shared.runtime;
        runtime.spawn("http listener", async move {
            let server = shared.accept(&listener).await;
            server.serve(listener).await;
        });
    }

    /// Hands everything over to the server.
    pub fn open(&self, server: Arc<Server>) {
        let _first = self.shared.server.set(server);
        self.shared.is_open.set(true);
    }
}

impl Shared {
    /// Takes connections until there is a server.
    async fn accept(self: &Arc<Self>, listener: &Listener) -> Arc<Server> {
        loop {
            let accepted = match select(pin!(self.opened()), pin!(listener.accept())).await {
                Either::Left((server, _)) => return server,
                Either::Right((accepted, _)) => accepted,
            };
            match accepted {
                Ok((stream, _peer)) => {
                    let shared = self.clone();
                    self.runtime.spawn("early http connection", async move {
                        if let Err(error) = shared.converse(stream).await {
                            tracing::debug!(event = "http_connection_failed", error = %error);
                        }
                    });
                }
                Err(error) => wait_to_accept(&self.runtime, &error).await,
            }
        }
    }

    async fn opened(&self) -> Arc<Server> {
        let mut is_open = self.is_open.watch();
        loop {
            if let Some(server) = self.server.get() {
                return server.clone();
            }
            if is_open.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn converse(&self, mut stream: Stream) -> io::Result<()> {
        // Answers can be sent without this option.
        let _ = stream.set_nodelay(true);
        let mut read = BytesMut::new();
        loop {
            match asked(&read) {
                Asked::Unknown => {}
                Asked::Probe { probe, with_body } => {
                    return self.answer(stream, probe, with_body).await;
                }
                Asked::Other => break,
            }
            let more = match select(pin!(self.opened()), pin!(stream.read_buf(&mut read))).await {
                Either::Left(_) => break,
                Either::Right((more, _)) => more?,
            };
            if more == 0 {
                return Ok(());
            }
        }
        let is_one_of_few = self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX;
        let opened = match is_one_of_few {
            true => self
                .runtime
                .timeout(self.wait_max, self.opened())
                .await
                .ok(),
            false => self.server.get().cloned(),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match opened {
            Some(server) => server.go_on(stream, read.freeze()).await,
            None => return self.answer(stream, Probe::Ready, true).await,
        }
        Ok(())
    }

    /// Answers, and ends the connection.
    async fn answer(&self, mut stream: Stream, probe: Probe, with_body: bool) -> io::Result<()> {
        let (status, body) = match probe {
            Probe::Live => ("200 OK", LIVE),
            Probe::Ready => ("503 Service Unavailable", OPENING),
        };
        let mut answer = format!(
            "HTTP/1.1 {status}\r\nServer: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.server_header,
            body.len(),
        );
        if with_body {
            answer.push_str(body);
        }
        let sent = self.runtime.timeout(PROBE_TIME, async move {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await?;
            // Closing a socket with unread bytes may discard the bytes that were sent on it.
            let mut rest = [0; 4_096];
            while stream.read(&mut rest).await? > 0 {}
            Ok(())
        });
        sent.await.unwrap_or(Ok(()))
    }
}

fn asked(read: &[u8]) -> Asked {
    let is_too_long = read.len() >= HEAD_BYTES_MAX;
    let Some(end) = read.iter().position(|byte| *byte == b'\n') else {
        return match is_too_long {
            true => Asked::Other,
            false => Asked::Unknown,
        };
    };
    let mut words = read[..end].split(|byte| *byte == b' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next();
    let path = std::str::from_utf8(path.unwrap_or_default()).unwrap_or_default();
    let (Some(Route::Health(probe)), Some(b"GET" | b"HEAD")) = (Route::of_path(path, true), method)
    else {
        return Asked::Other;
    };
    let has_end = |mark: &[u8]| read.windows(mark.len()).any(|bytes| bytes == mark);
    let with_body = method == Some(b"GET");
    match has_end(b"\r\n\r\n") || has_end(b"\n\n") || is_too_long {
        true => Asked::Probe { probe, with_body },
        false => Asked::Unknown,
    }
}
