//! The side that answers: one connection on which a peer asks.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kvorum_runtime::{Runtime, Stream, TaskGuard};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::assembly::Assembly;
use crate::connection;
use crate::error::ProtocolError;
use crate::frame::{Frame, FrameHead};
use crate::hello::{Admission, HELLO_BYTES_MAX, Hello, NOBODY, Refusal, Verdict};
use crate::message::Message;
use crate::outbox::{Opening, Outbox};
use crate::peers::{Caller, Directory, PeerService, PeerSettings, Served};

/// The first bytes of a hello, which tell its length.
const HELLO_START_BYTES: usize = 10;

/// What all connections of a listener share.
pub(crate) struct Answering {
    pub(crate) runtime: Runtime,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) service: Arc<dyn PeerService>,
    pub(crate) settings: PeerSettings,
}

/// A connection on which a peer asks.
struct Connection {
    answering: Arc<Answering>,
    caller: Caller,
    outbox: Arc<Outbox>,
    in_progress: Arc<Mutex<BTreeMap<u64, TaskGuard<()>>>>,
    /// How long the senders of requests that are still coming will wait.
    waits: BTreeMap<u64, u32>,
    assembly: Assembly,
}

/// Answers a peer until the connection ends. What is in progress then is dropped.
pub(crate) async fn serve(answering: Arc<Answering>, mut stream: Stream) {
    let runtime = answering.runtime.clone();
    let settings = answering.settings;
    let peer = stream.peer_address();
    let greeted = runtime.timeout(settings.connect_wait_max, greet(&answering, &mut stream));
    let caller = match greeted.await {
        Ok(Ok(caller)) => caller,
        Ok(Err(refusal)) => {
            tracing::warn!(event = "peer_refused", peer = %peer, reason = %refusal);
            return;
        }
        Err(_) => {
            tracing::debug!(event = "peer_silent", peer = %peer);
            return;
        }
    };
    // A socket that cannot be told so works all the same, only slower.
    let _told_or_slower = stream.set_nodelay(true);
    let (mut input, output) = stream.into_split();
    let outbox = Arc::new(Outbox::new(settings.queued_bytes_max));
    // Guarded: when this future is dropped, the connection ends in both directions.
    let writing = runtime.spawn("peer writing", connection::write(outbox.clone(), output));
    let _writing = writing.abort_on_drop();
    let mut connection = Connection {
        assembly: Assembly::new(settings.message_bytes_max, settings.in_progress_max),
        caller,
        outbox: outbox.clone(),
        in_progress: Arc::default(),
        waits: BTreeMap::new(),
        answering,
    };
    let take = |frame| connection.take(frame);
    let silence_max = settings.silence_max;
    let ended = connection::read(&runtime, &mut input, &outbox, silence_max, take).await;
    tracing::debug!(event = "peer_connection_ended", peer = %peer, reason = %ended);
    outbox.close();
    connection.in_progress.lock().clear();
}

/// Hears a hello and answers with the verdict.
async fn greet(answering: &Answering, stream: &mut Stream) -> Result<Caller, Refusal> {
    let hello = hear(stream).await.ok_or(Refusal::NoHello)?;
    let own = answering.directory.introduction();
    let version = hello.common_version();
    let admission = if version.is_none() {
        Admission::Refused(Refusal::NoCommonVersion)
    } else if hello.expected != NOBODY && hello.expected != own.node {
        Admission::Refused(Refusal::OtherNode)
    } else {
        answering.directory.admit(&hello.introduction)
    };
    let verdict = Verdict {
        admission,
        version: version.unwrap_or(0),
        node: own.node,
    };
    let sent = stream.write_all(&verdict.encode()).await;
    if let Admission::Refused(refusal) = admission {
        return Err(refusal);
    }
    sent.map_err(|_| Refusal::NoHello)?;
    Ok(Caller {
        node: hello.introduction.node,
        lane: hello.lane,
        is_member: admission == Admission::Member,
    })
}

async fn hear(stream: &mut Stream) -> Option<Hello> {
    let mut bytes = [0; HELLO_BYTES_MAX];
    stream
        .read_exact(&mut bytes[..HELLO_START_BYTES])
        .await
        .ok()?;
    let rest = Hello::rest_of(bytes.first_chunk()?)?;
    let end = HELLO_START_BYTES + rest;
    stream
        .read_exact(bytes.get_mut(HELLO_START_BYTES..end)?)
        .await
        .ok()?;
    Hello::decode(bytes.get(..end)?)
}

impl Connection {
    fn take(&mut self, frame: Frame) -> Result<(), ProtocolError> {
        match frame.head {
            FrameHead::Request {
                stream,
                wait_ms,
                head_len,
                len,
            } => {
                let whole = self.assembly.begin(stream, head_len, len, frame.fragment)?;
                match whole {
                    Some(message) => self.handle(stream, wait_ms, message),
                    None => {
                        self.waits.insert(stream, wait_ms);
                    }
                }
            }
            FrameHead::More { stream } => {
                if let Some(message) = self.assembly.go_on(stream, &frame.fragment)? {
                    let wait_ms = self.waits.remove(&stream).unwrap_or(0);
                    self.handle(stream, wait_ms, message);
                }
            }
            FrameHead::Cancelled { stream } => {
                self.assembly.forget(stream);
                self.waits.remove(&stream);
                self.in_progress.lock().remove(&stream);
            }
            // We do not ask on this connection.
            FrameHead::Answer { stream, .. } | FrameHead::Overload { stream } => {
                return Err(ProtocolError::StrayFragment { stream });
            }
            FrameHead::Ping | FrameHead::Pong => {}
        }
        Ok(())
    }

    fn handle(&mut self, stream: u64, wait_ms: u32, message: Message) {
        let answering = &self.answering;
        let wait = Duration::from_millis(u64::from(wait_ms));
        let deadline = answering.runtime.now().plus(wait);
        if self.in_progress.lock().len() >= answering.settings.in_progress_max {
            self.outbox.signal(FrameHead::Overload { stream });
            return;
        }
        match answering.service.handle(self.caller, message, deadline) {
            Served::Now(answer) => reply(&self.outbox, stream, answer),
            Served::Overload => self.outbox.signal(FrameHead::Overload { stream }),
            Served::Later(answer) => self.await_answer(stream, wait, answer),
        }
    }

    fn await_answer(
        &self,
        stream: u64,
        wait: Duration,
        answer: Pin<Box<dyn Future<Output = Message> + Send>>,
    ) {
        let runtime = self.answering.runtime.clone();
        let (outbox, in_progress) = (self.outbox.clone(), self.in_progress.clone());
        let work = async move {
            // Past the deadline nobody listens.
            if let Ok(answer) = runtime.timeout(wait, answer).await {
                reply(&outbox, stream, answer);
            }
            in_progress.lock().remove(&stream);
        };
        // Locked over both, so that the task does not end before it is known.
        let mut in_progress = self.in_progress.lock();
        let task = self.answering.runtime.spawn("peer request", work);
        in_progress.insert(stream, task.abort_on_drop());
    }
}

fn reply(outbox: &Outbox, stream: u64, answer: Message) {
    if outbox.push(stream, Opening::Answer, answer).is_err() {
        // A closed outbox ignores it; a full one gets the news through.
        outbox.signal(FrameHead::Overload { stream });
    }
}
