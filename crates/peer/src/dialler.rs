//! The side that asks: one connection to one peer on one lane, made when it is needed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_ring::NodeId;
use kvorum_runtime::{Moment, ReadHalf, Runtime, Stream, TaskGuard};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use crate::assembly::Assembly;
use crate::connection;
use crate::error::{PeerError, ProtocolError};
use crate::frame::{Frame, FrameHead};
use crate::hello::{Admission, Hello, Introduction, NOBODY, Refusal, VERDICT_BYTES, Verdict};
use crate::lane::Lane;
use crate::message::Message;
use crate::outbox::{NotTaken, Opening, Outbox};
use crate::peers::PeerSettings;

type Answered = Result<Message, PeerError>;

/// A connection over which this node asks.
pub(crate) struct Asking {
    node: NodeId,
    outbox: Arc<Outbox>,
    pending: Arc<Pending>,
    next_stream: AtomicU64,
    _reading: TaskGuard<()>,
}

/// Requests without an answer, by stream; absent once the connection has ended.
struct Pending {
    waiting: Mutex<Option<BTreeMap<u64, oneshot::Sender<Answered>>>>,
}

/// Takes a request back when nobody waits for it any more.
struct Withdrawal<'a> {
    asking: &'a Asking,
    stream: u64,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.asking.pending.take(self.stream).is_some() {
            self.asking.outbox.cancel(self.stream);
        }
    }
}

impl Pending {
    fn take(&self, stream: u64) -> Option<oneshot::Sender<Answered>> {
        self.waiting.lock().as_mut()?.remove(&stream)
    }

    fn end(&self, error: &PeerError) {
        let waiting = self.waiting.lock().take();
        for (_, waiter) in waiting.into_iter().flatten() {
            // Whoever is gone needs no error.
            let _waits_or_not = waiter.send(Err(error.clone()));
        }
    }
}

/// Who is called, where, and by whom.
pub(crate) struct Call {
    pub(crate) address: SocketAddr,
    /// Zero when whoever listens there is meant.
    pub(crate) node: NodeId,
    pub(crate) lane: Lane,
    pub(crate) introduction: Introduction,
}

impl Asking {
    /// Connects and introduces this node.
    pub(crate) async fn connect(
        runtime: &Runtime,
        call: Call,
        settings: PeerSettings,
    ) -> Result<Self, PeerError> {
        let node = call.node;
        let unreachable = |detail: String| PeerError::Unreachable { node, detail };
        let connected = async {
            let connected = runtime.connect(call.address).await;
            let mut stream = connected.map_err(|error| unreachable(error.to_string()))?;
            let reached = introduce(&mut stream, &call).await?;
            Ok((stream, reached))
        };
        let wait = settings.connect_wait_max;
        let (stream, reached) = match runtime.timeout(wait, connected).await {
            Ok(connected) => connected?,
            Err(_) => {
                return Err(unreachable(format!(
                    "no hello within {} ms",
                    wait.as_millis()
                )));
            }
        };
        Ok(Self::start(runtime, stream, reached, call.lane, settings))
    }

    /// Who was reached.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    fn start(
        runtime: &Runtime,
        stream: Stream,
        node: NodeId,
        lane: Lane,
        settings: PeerSettings,
    ) -> Self {
        let outbox = Arc::new(Outbox::new(settings.queued_bytes_max));
        let pending = Arc::new(Pending {
            waiting: Mutex::new(Some(BTreeMap::new())),
        });
        let (input, output) = stream.into_split();
        runtime.spawn("peer writing", connection::write(outbox.clone(), output));
        let reading = Reading {
            runtime: runtime.clone(),
            node,
            lane,
            outbox: outbox.clone(),
            pending: pending.clone(),
            settings,
        };
        let reading = runtime.spawn("peer reading", reading.run(input));
        Self {
            node,
            outbox,
            pending,
            next_stream: AtomicU64::new(1),
            _reading: reading.abort_on_drop(),
        }
    }

    /// False once the connection has ended.
    pub(crate) fn is_open(&self) -> bool {
        self.pending.waiting.lock().is_some()
    }

    /// Asks, and waits for the answer until `deadline`.
    pub(crate) async fn request(
        &self,
        runtime: &Runtime,
        message: Message,
        deadline: Moment,
    ) -> Answered {
        let node = self.node;
        let wait = deadline.since(runtime.now());
        if wait.is_zero() {
            return Err(PeerError::Timeout { node });
        }
        let stream = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match self.pending.waiting.lock().as_mut() {
            Some(waiting) => waiting.insert(stream, sender),
            None => return Err(self.broken("it had ended")),
        };
        let _withdrawal = Withdrawal {
            asking: self,
            stream,
        };
        let opening = Opening::Request {
            wait_ms: milliseconds(wait),
        };
        match self.outbox.push(stream, opening, message) {
            Ok(()) => {}
            Err(NotTaken::Full) => {
                // It never went out: there is nothing to withdraw.
                self.pending.take(stream);
                return Err(PeerError::Overload { node });
            }
            Err(NotTaken::Closed) => return Err(self.broken("it had ended")),
        }
        match runtime.timeout(wait, answer).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) => Err(self.broken("it ended")),
            Err(_) => Err(PeerError::Timeout { node }),
        }
    }

    fn broken(&self, detail: &str) -> PeerError {
        PeerError::Broken {
            node: self.node,
            detail: detail.to_owned(),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

fn milliseconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Says hello and hears the verdict, and who gave it.
async fn introduce(stream: &mut Stream, call: &Call) -> Result<NodeId, PeerError> {
    let node = call.node;
    let unreachable = |detail: String| PeerError::Unreachable { node, detail };
    // Small messages must not wait for more to come.
    stream
        .set_nodelay(true)
        .map_err(|error| unreachable(error.to_string()))?;
    let hello = Hello::new(call.introduction.clone(), call.lane, node);
    let exchanged = async {
        stream.write_all(&hello.encode()).await?;
        let mut verdict = [0; VERDICT_BYTES];
        stream.read_exact(&mut verdict).await?;
        Ok::<_, std::io::Error>(verdict)
    };
    let verdict = exchanged
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let refused = |refusal| PeerError::Refused {
        address: call.address,
        refusal,
    };
    let verdict = Verdict::decode(&verdict).ok_or(refused(Refusal::NoHello))?;
    match verdict.admission {
        Admission::Refused(refusal) => Err(refused(refusal)),
        Admission::Member | Admission::Stranger if node == NOBODY || verdict.node == node => {
            Ok(verdict.node)
        }
        Admission::Member | Admission::Stranger => Err(refused(Refusal::OtherNode)),
    }
}

struct Reading {
    runtime: Runtime,
    node: NodeId,
    lane: Lane,
    outbox: Arc<Outbox>,
    pending: Arc<Pending>,
    settings: PeerSettings,
}

impl Reading {
    async fn run(self, mut input: ReadHalf) {
        let settings = &self.settings;
        let mut assembly = Assembly::new(settings.message_bytes_max, settings.in_progress_max);
        let take = |frame| self.take(&mut assembly, frame);
        let silence_max = settings.silence_max;
        let ended = connection::read(&self.runtime, &mut input, &self.outbox, silence_max, take);
        let ended = ended.await;
        tracing::debug!(event = "peer_connection_ended", node = %self.node, lane = self.lane.name(), reason = %ended);
        self.outbox.close();
        self.pending.end(&PeerError::Broken {
            node: self.node,
            detail: ended.to_string(),
        });
    }

    fn take(&self, assembly: &mut Assembly, frame: Frame) -> Result<(), ProtocolError> {
        let (stream, whole) = match frame.head {
            FrameHead::Answer {
                stream,
                head_len,
                len,
            } => (
                stream,
                assembly.begin(stream, head_len, len, frame.fragment)?,
            ),
            FrameHead::More { stream } => (stream, assembly.go_on(stream, &frame.fragment)?),
            FrameHead::Overload { stream } => {
                assembly.forget(stream);
                self.answer(stream, Err(PeerError::Overload { node: self.node }));
                return Ok(());
            }
            // The peer does not ask on this connection.
            FrameHead::Request { stream, .. } | FrameHead::Cancelled { stream } => {
                return Err(ProtocolError::StrayFragment { stream });
            }
            FrameHead::Ping | FrameHead::Pong => return Ok(()),
        };
        if let Some(message) = whole {
            self.answer(stream, Ok(message));
        }
        Ok(())
    }

    fn answer(&self, stream: u64, answered: Answered) {
        if let Some(waiter) = self.pending.take(stream) {
            // Whoever is gone needs no answer.
            let _waits_or_not = waiter.send(answered);
        }
    }
}
