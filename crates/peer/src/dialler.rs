//! The calling side: one connection to one peer on one lane, made when it is needed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_ring::NodeId;
use kvorum_runtime::{Moment, Runtime, TaskGuard};
use kvorum_tls::{
    HandshakeError, SecureReadHalf, SecureStream, Tls, in_the_clear, into_split, is_encrypted,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use crate::assembly::Assembly;
use crate::connection::{self, Ended};
use crate::encryption::{Encryption, check_names};
use crate::error::{PeerError, ProtocolError};
use crate::frame::{Frame, FrameHead};
use crate::hello::{Admission, Hello, Introduction, NO_NODE, Refusal, VERDICT_BYTES, Verdict};
use crate::lane::Lane;
use crate::message::Message;
use crate::outbox::{NotTaken, Opening, Outbox};
use crate::settings::PeerSettings;

type Answered = Result<Message, PeerError>;

/// Pause between two looks at the waiting requests.
const LOOK_PERIOD: Duration = Duration::from_millis(2);

/// A connection over which this node sends requests.
pub(crate) struct Asking {
    node: NodeId,
    is_encrypted: bool,
    outbox: Arc<Outbox>,
    pending: Arc<Pending>,
    next_stream: AtomicU64,
    _reading: TaskGuard<()>,
}

/// Requests without an answer, by stream; `None` once the connection has ended.
struct Pending {
    waiting: Mutex<Option<BTreeMap<u64, oneshot::Sender<Answered>>>>,
}

/// Cancels a request when its caller stops waiting.
struct Withdrawal<'a> {
    asking: &'a Asking,
    stream: u64,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        let mut waiting = self.asking.pending.waiting.lock();
        let waiter = waiting.as_mut().and_then(|it| it.remove(&self.stream));
        // Under the lock: a request that is no longer pending has already been withdrawn.
        if waiter.is_some() {
            self.asking.outbox.cancel(self.stream);
        }
    }
}

impl Pending {
    /// The waiting streams; `None` if the connection has ended.
    fn streams(&self) -> Option<Vec<u64>> {
        let waiting = self.waiting.lock();
        waiting.as_ref().map(|it| it.keys().copied().collect())
    }

    /// True while one of these streams waits and the connection is open.
    fn has_any(&self, streams: &[u64]) -> bool {
        let waiting = self.waiting.lock();
        waiting
            .as_ref()
            .is_some_and(|it| streams.iter().any(|stream| it.contains_key(stream)))
    }

    fn take(&self, stream: u64) -> Option<oneshot::Sender<Answered>> {
        self.waiting.lock().as_mut()?.remove(&stream)
    }

    /// Ends all waiting requests with an error. The outbox has to be closed before, so that the
    /// messages that it holds never go out. A peer that sent a farewell has executed no request
    /// without answering it.
    fn end(&self, node: NodeId, outbox: &Outbox, ended: &Ended) {
        let waiting = self.waiting.lock().take();
        let is_farewell = matches!(ended, Ended::Farewell);
        for (stream, waiter) in waiting.into_iter().flatten() {
            let detail = ended.to_string();
            let error = if is_farewell || outbox.holds(stream) {
                PeerError::Unreachable { node, detail }
            } else {
                PeerError::Broken { node, detail }
            };
            // A caller that has gone needs no error.
            let _waits_or_not = waiter.send(Err(error));
        }
    }
}

/// The two ends of a call.
pub(crate) struct Call {
    pub(crate) address: SocketAddr,
    /// The expected node; zero accepts any node at the address.
    pub(crate) node: NodeId,
    /// The name that its certificate has to carry, if known.
    pub(crate) name: Option<String>,
    pub(crate) lane: Lane,
    pub(crate) introduction: Introduction,
}

impl Asking {
    /// Connects and introduces this node.
    pub(crate) async fn connect(
        runtime: &Runtime,
        call: Call,
        settings: PeerSettings,
        encryption: &Encryption,
    ) -> Result<Self, PeerError> {
        let wait = settings.connect_wait_max;
        let connecting = call.reach(runtime, encryption);
        let Ok(connected) = runtime.timeout(wait, connecting).await else {
            let detail = format!("no hello within {} ms", wait.as_millis());
            return Err(call.unreachable(detail));
        };
        let (stream, reached) = connected?;
        Ok(Self::start(runtime, stream, reached, call.lane, settings))
    }

    /// The node that was reached.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// True when the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    fn start(
        runtime: &Runtime,
        stream: SecureStream,
        node: NodeId,
        lane: Lane,
        settings: PeerSettings,
    ) -> Self {
        let is_encrypted = is_encrypted(&stream);
        let outbox = Arc::new(Outbox::new(settings.queued_bytes_max));
        let pending = Arc::new(Pending {
            waiting: Mutex::new(Some(BTreeMap::new())),
        });
        let (input, output) = into_split(stream);
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
            is_encrypted,
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

    /// Sends a request, and waits for the answer until `deadline`.
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
            None => return Err(self.unreachable()),
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
            Err(NotTaken::Full(_)) => {
                // The request was never sent: there is nothing to withdraw.
                self.pending.take(stream);
                return Err(PeerError::Overload { node });
            }
            Err(NotTaken::Closed) => {
                self.pending.take(stream);
                return Err(self.unreachable());
            }
        }
        match runtime.timeout(wait, answer).await {
            // The peer may have dropped the request at its deadline before it sent the farewell.
            Ok(Ok(Err(PeerError::Unreachable { .. }))) if runtime.now() >= deadline => {
                Err(PeerError::Timeout { node })
            }
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) => Err(PeerError::Broken {
                node,
                detail: "it ended".to_owned(),
            }),
            Err(_) => Err(PeerError::Timeout { node }),
        }
    }

    /// Sends a request behind all earlier ones: the answer comes when the peer has answered all
    /// earlier requests, or has received their cancellation.
    pub(crate) async fn request_behind(
        &self,
        runtime: &Runtime,
        message: Message,
        deadline: Moment,
    ) -> Answered {
        let earlier = self.pending.streams().ok_or_else(|| self.unreachable())?;
        while self.pending.has_any(&earlier) {
            if runtime.now() >= deadline {
                return Err(PeerError::Timeout { node: self.node });
            }
            runtime.sleep(LOOK_PERIOD).await;
        }
        self.request(runtime, message, deadline).await
    }

    /// The error for a request of which nothing was sent.
    fn unreachable(&self) -> PeerError {
        PeerError::Unreachable {
            node: self.node,
            detail: "the connection had ended".to_owned(),
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

impl Call {
    /// Makes the connection and receives the verdict; returns the node at the other end.
    async fn reach(
        &self,
        runtime: &Runtime,
        encryption: &Encryption,
    ) -> Result<(SecureStream, NodeId), PeerError> {
        let reached = self.attempt(runtime, encryption.tls()).await;
        match reached {
            Err(error) if error.is_about_encryption() && !encryption.is_required() => {
                if encryption.tls().is_none() {
                    return Err(error);
                }
                tracing::warn!(event = "peer_goes_on_in_the_clear", address = %self.address, error = %error);
                self.attempt(runtime, None).await
            }
            reached => reached,
        }
    }

    async fn attempt(
        &self,
        runtime: &Runtime,
        tls: Option<&Tls>,
    ) -> Result<(SecureStream, NodeId), PeerError> {
        let connected = runtime.connect(self.address).await;
        let stream = connected.map_err(|error| self.unreachable(error.to_string()))?;
        // Small messages must not wait for further ones.
        let set = stream.set_nodelay(true);
        set.map_err(|error| self.unreachable(error.to_string()))?;
        let mut stream = match tls {
            None => in_the_clear(stream),
            Some(tls) => {
                let shaken = tls.connect(stream).await;
                let (stream, certified) = shaken.map_err(|failure| self.not_encrypted(failure))?;
                let cluster = &self.introduction.cluster_name;
                let checked = check_names(&certified, cluster, self.name.as_deref());
                checked.map_err(|failure| self.not_encrypted(failure))?;
                stream
            }
        };
        let reached = self.introduce(&mut stream).await?;
        Ok((stream, reached))
    }

    /// Sends the hello and receives the verdict; returns the node at the other end.
    async fn introduce(&self, stream: &mut SecureStream) -> Result<NodeId, PeerError> {
        let node = self.node;
        let hello = Hello::new(self.introduction.clone(), self.lane, node);
        let is_encrypted = is_encrypted(stream);
        let exchanged = async {
            stream.write_all(&hello.encode()).await?;
            stream.flush().await?;
            let mut verdict = [0; VERDICT_BYTES];
            stream.read_exact(&mut verdict).await?;
            Ok::<_, std::io::Error>(verdict)
        };
        let verdict = exchanged.await.map_err(|error| {
            // The callee may check the caller's certificate after the caller's handshake has ended.
            match HandshakeError::behind(&error).filter(|_| is_encrypted) {
                Some(failure) => self.not_encrypted(failure),
                None => self.unreachable(error.to_string()),
            }
        })?;
        let refused = |refusal| PeerError::Refused {
            address: self.address,
            refusal,
        };
        let verdict = Verdict::decode(&verdict).ok_or(refused(Refusal::NoHello))?;
        match verdict.admission {
            Admission::Refused(refusal) => Err(refused(refusal)),
            Admission::Member | Admission::Stranger if node == NO_NODE || verdict.node == node => {
                Ok(verdict.node)
            }
            Admission::Member | Admission::Stranger => Err(refused(Refusal::OtherNode)),
        }
    }

    fn unreachable(&self, detail: String) -> PeerError {
        let node = self.node;
        PeerError::Unreachable { node, detail }
    }

    fn not_encrypted(&self, failure: HandshakeError) -> PeerError {
        let address = self.address;
        PeerError::Encryption { address, failure }
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
    async fn run(self, mut input: SecureReadHalf) {
        let settings = &self.settings;
        let mut assembly = Assembly::new(settings.message_bytes_max, settings.in_progress_max);
        let take = |frame| self.take(&mut assembly, frame);
        let silence_max = settings.silence_max;
        let ended = connection::read(&self.runtime, &mut input, &self.outbox, silence_max, take);
        let ended = ended.await;
        tracing::debug!(event = "peer_connection_ended", node = %self.node, lane = self.lane.name(), reason = %ended);
        self.outbox.close();
        self.pending.end(self.node, &self.outbox, &ended);
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
            // The peer sends no requests on this connection.
            FrameHead::Request { stream, .. } | FrameHead::Cancelled { stream } => {
                return Err(ProtocolError::StrayFragment { stream });
            }
            FrameHead::Ping | FrameHead::Pong | FrameHead::Farewell => return Ok(()),
        };
        if let Some(message) = whole {
            self.answer(stream, Ok(message));
        }
        Ok(())
    }

    fn answer(&self, stream: u64, answered: Answered) {
        if let Some(waiter) = self.pending.take(stream) {
            // A caller that has gone needs no answer.
            let _waits_or_not = waiter.send(answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The caller may then ask another node: the peer has received a part at most, and never
    /// executes a part.
    #[test]
    fn a_request_that_had_not_gone_out_whole_was_certainly_not_carried_out() {
        let executor = Runtime::simulated(1).unwrap();
        let (outbox, node) = (Outbox::new(usize::MAX), NodeId::from_bytes([2; 16]));
        let mut waiting = BTreeMap::new();
        let answers = [1, 2].map(|stream| {
            let (sender, answer) = oneshot::channel();
            waiting.insert(stream, sender);
            answer
        });
        let pending = Pending {
            waiting: Mutex::new(Some(waiting)),
        };
        let opening = Opening::Request { wait_ms: 1 };
        let large = Message {
            head: bytes::Bytes::from_static(b"large"),
            body: bytes::Bytes::from(vec![7; 8 << 20]),
        };
        outbox.push(1, opening, large).unwrap();
        outbox.push(2, opening, Message::of_head("small")).unwrap();
        let gone_out = executor.block_on(outbox.next_batch());
        assert!(gone_out.is_some());
        outbox.close();
        pending.end(node, &outbox, &Ended::Closed);
        let [large, small] = answers.map(|answer| executor.block_on(answer).unwrap());
        assert!(matches!(large, Err(PeerError::Unreachable { .. })));
        assert!(matches!(small, Err(PeerError::Broken { .. })));
    }
}
