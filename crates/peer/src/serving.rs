//! The answering side: one connection on which a peer sends requests.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use kvorum_runtime::{COUNTED_BYTES_MIN, Runtime, Stream, Taken};
use kvorum_tls::{
    Certified, HandshakeError, SecureStream, begins_handshake, in_the_clear, into_split,
    is_encrypted,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::answers::{Answers, NowTaken};
use crate::assembly::Assembly;
use crate::connected::{Callers, Connected, Guest};
use crate::connection::{self, Ended};
use crate::encryption::{Encryption, check_names};
use crate::error::ProtocolError;
use crate::frame::{Frame, FrameHead};
use crate::hello::{Admission, HELLO_BYTES_MAX, Hello, NO_NODE, Refusal, Verdict};
use crate::lane::Lane;
use crate::message::Message;
use crate::outbox::{NotTaken, Opening, Outbox};
use crate::service::{Caller, Directory, PeerService, Served};
use crate::settings::PeerSettings;

/// Length of the start of a hello, which contains the hello's length.
const HELLO_START_BYTES: usize = 10;

/// State that all connections of a listener share.
pub(crate) struct Answering {
    pub(crate) runtime: Runtime,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) service: Arc<dyn PeerService>,
    pub(crate) settings: PeerSettings,
    pub(crate) encryption: Encryption,
    pub(crate) callers: Arc<Callers>,
}

/// The reason why a caller is not answered.
#[derive(Debug, thiserror::Error)]
enum NotGreeted {
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Handshake(HandshakeError),
    #[error("it asks for TLS, and `cluster.tls` is off here")]
    EncryptionOff,
    /// The caller closed the connection, for example after a timeout.
    #[error("it hung up during the handshake")]
    HungUp,
}

impl NotGreeted {
    fn from_handshake(error: HandshakeError) -> Self {
        match error {
            // The caller began with TLS, so it supports TLS.
            HandshakeError::NotSpoken => Self::HungUp,
            error => Self::Handshake(error),
        }
    }
}

/// A connection on which a peer sends requests.
struct Connection {
    answering: Arc<Answering>,
    caller: Caller,
    answers: Arc<Answers>,
    /// Deadlines of requests that are still arriving.
    waits: BTreeMap<u64, Waits>,
    /// Requests that were refused while they were arriving, with the number of bytes still to
    /// arrive.
    refused: BTreeMap<u64, u64>,
    assembly: Assembly,
}

/// A request that is still arriving.
struct Waits {
    wait_ms: u32,
    room: Option<Taken>,
}

/// Large requests in progress leave no room for another.
struct NoRoom;

/// Answers a peer until the connection ends, and then drops requests in progress.
pub(crate) async fn serve(answering: Arc<Answering>, stream: Stream, guest: Guest) {
    let runtime = answering.runtime.clone();
    let settings = answering.settings.clone();
    let peer = stream.peer_address();
    // A socket without this option also works, only slower.
    let _set_or_slower = stream.set_nodelay(true);
    let greeted = runtime.timeout(settings.connect_wait_max, greet(&answering, stream));
    let (mut caller, stream) = match greeted.await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(NotGreeted::HungUp)) => {
            tracing::debug!(event = "peer_hung_up", peer = %peer);
            return;
        }
        // During every join, the two sides belong to different clusters for a moment.
        Ok(Err(NotGreeted::Refused(refusal @ (Refusal::OtherCluster | Refusal::Removed)))) => {
            tracing::info!(event = "peer_refused", peer = %peer, reason = %refusal);
            return;
        }
        Ok(Err(refusal)) => {
            tracing::warn!(event = "peer_refused", peer = %peer, reason = %refusal);
            return;
        }
        Err(_) => {
            tracing::debug!(event = "peer_silent", peer = %peer);
            return;
        }
    };
    let connected = Connected {
        node: caller.node,
        lane: caller.lane,
        is_asking: false,
        is_encrypted: is_encrypted(&stream),
    };
    let outbox = Arc::new(Outbox::new(settings.queued_bytes_max));
    let answers = Arc::new(Answers::new(outbox.clone()));
    let is_member = caller.is_member;
    let mut calling = answering
        .callers
        .note(connected, is_member, answers.clone());
    caller.connection = calling.number();
    let _guest = (!caller.is_member).then_some(guest);
    let (mut input, output) = into_split(stream);
    // Guarded: when this future is dropped, the connection ends in both directions.
    let writing = runtime.spawn("peer writing", connection::write(outbox.clone(), output));
    let _writing = writing.abort_on_drop();
    let mut connection = Connection {
        assembly: Assembly::new(settings.message_bytes_max, settings.in_progress_max),
        caller,
        answers: answers.clone(),
        waits: BTreeMap::new(),
        refused: BTreeMap::new(),
        answering,
    };
    let take = |frame| connection.take(frame);
    let silence_max = settings.silence_max;
    let reading = connection::read(&runtime, &mut input, &outbox, silence_max, take);
    let mut reading = pin!(reading);
    let ended = poll_fn(
        |context| match Pin::new(&mut calling.dismissed).poll(context) {
            Poll::Ready(_) => Poll::Ready(Ended::Dismissed),
            Poll::Pending => reading.as_mut().poll(context),
        },
    );
    let ended = ended.await;
    tracing::debug!(event = "peer_connection_ended", peer = %peer, reason = %ended);
    answers.end();
}

/// Receives a hello, with or without TLS, and answers with the verdict.
async fn greet(
    answering: &Answering,
    mut stream: Stream,
) -> Result<(Caller, SecureStream), NotGreeted> {
    let mut start = [0; HELLO_START_BYTES];
    let heard = stream.read_exact(&mut start).await;
    heard.map_err(|_| Refusal::NoHello)?;
    let (mut stream, certified) = if begins_handshake(&start) {
        let tls = answering.encryption.tls();
        let tls = tls.ok_or(NotGreeted::EncryptionOff)?;
        let shaken = tls.accept(stream, &start).await;
        let (mut stream, certified) = shaken.map_err(NotGreeted::from_handshake)?;
        let heard = stream.read_exact(&mut start).await;
        heard.map_err(|_| NotGreeted::HungUp)?;
        (stream, Some(certified))
    } else {
        (in_the_clear(stream), None)
    };
    let hello = hear_rest(&start, &mut stream).await;
    let hello = hello.ok_or(Refusal::NoHello)?;
    let admission = admit(answering, &hello, certified.as_ref());
    let verdict = Verdict {
        admission,
        version: hello.common_version().unwrap_or(0),
        node: answering.directory.introduction().node,
    };
    let sent = async {
        stream.write_all(&verdict.encode()).await?;
        stream.flush().await
    };
    let sent = sent.await;
    if let Admission::Refused(refusal) = admission {
        return Err(refusal.into());
    }
    sent.map_err(|_| Refusal::NoHello)?;
    let caller = Caller {
        node: hello.introduction.node,
        lane: hello.lane,
        is_member: admission == Admission::Member,
        // The connection gets its number when it is noted.
        connection: 0,
    };
    Ok((caller, stream))
}

fn admit(answering: &Answering, hello: &Hello, certified: Option<&Certified>) -> Admission {
    let own = answering.directory.introduction();
    if certified.is_none() && answering.encryption.is_required() {
        return Admission::Refused(Refusal::NotEncrypted);
    }
    if hello.common_version().is_none() {
        return Admission::Refused(Refusal::NoCommonVersion);
    }
    if hello.expected != NO_NODE && hello.expected != own.node {
        return Admission::Refused(Refusal::OtherNode);
    }
    let admission = answering.directory.admit(&hello.introduction);
    if let (Some(certified), Admission::Member | Admission::Stranger) = (certified, admission) {
        let caller = &hello.introduction;
        let name = answering.directory.name(caller.node);
        if let Err(error) = check_names(certified, &own.cluster_name, name.as_deref()) {
            tracing::warn!(event = "peer_certificate_of_another", node = %caller.node, error = %error);
            return Admission::Refused(Refusal::OtherCertificate);
        }
    }
    admission
}

async fn hear_rest(start: &[u8; HELLO_START_BYTES], stream: &mut SecureStream) -> Option<Hello> {
    let mut bytes = [0; HELLO_BYTES_MAX];
    let rest = Hello::rest_of(start)?;
    let end = HELLO_START_BYTES + rest;
    bytes.get_mut(..HELLO_START_BYTES)?.copy_from_slice(start);
    let heard = stream.read_exact(bytes.get_mut(HELLO_START_BYTES..end)?);
    heard.await.ok()?;
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
                let Ok(room) = self.room_for(len) else {
                    return self.refuse(stream, len, frame.fragment.len());
                };
                let whole = self.assembly.begin(stream, head_len, len, frame.fragment)?;
                match whole {
                    Some(message) => self.handle(stream, wait_ms, room, message),
                    None => {
                        self.waits.insert(stream, Waits { wait_ms, room });
                    }
                }
            }
            FrameHead::More { stream } if self.refused.contains_key(&stream) => {
                self.pass_over(stream, frame.fragment.len());
            }
            FrameHead::More { stream } => {
                if let Some(message) = self.assembly.go_on(stream, &frame.fragment)? {
                    let waits = self.waits.remove(&stream);
                    let (wait_ms, room) = waits.map_or((0, None), |it| (it.wait_ms, it.room));
                    self.handle(stream, wait_ms, room, message);
                }
            }
            FrameHead::Cancelled { stream } => {
                self.refused.remove(&stream);
                self.assembly.forget(stream);
                self.waits.remove(&stream);
                self.answers.remove(stream);
            }
            // This node sends no requests on this connection.
            FrameHead::Answer { stream, .. } | FrameHead::Overload { stream } => {
                return Err(ProtocolError::StrayFragment { stream });
            }
            FrameHead::Ping | FrameHead::Pong | FrameHead::Farewell => {}
        }
        Ok(())
    }

    /// Room for a request of this many bytes, if it is large; an error if there is none.
    fn room_for(&self, len: u64) -> Result<Option<Taken>, NoRoom> {
        let settings = &self.answering.settings;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len <= COUNTED_BYTES_MIN || len > settings.message_bytes_max {
            return Ok(None);
        }
        match self.caller.lane {
            // The cluster's state comes before the requests in it.
            Lane::Control => Ok(Some(settings.room.take_anyway(len))),
            Lane::Requests | Lane::Bulk => settings.room.take(len).map(Some).ok_or(NoRoom),
        }
    }

    /// Refuses a request after only its beginning has arrived.
    fn refuse(&mut self, stream: u64, len: u64, come: usize) -> Result<(), ProtocolError> {
        let max = self.answering.settings.in_progress_max;
        if self.refused.len() >= max {
            return Err(ProtocolError::TooMany { max });
        }
        self.refused.insert(stream, len);
        self.pass_over(stream, come);
        self.answers.outbox.signal(FrameHead::Overload { stream });
        Ok(())
    }

    fn pass_over(&mut self, stream: u64, come: usize) {
        if let Some(left) = self.refused.get_mut(&stream) {
            *left = left.saturating_sub(come as u64);
            if *left == 0 {
                self.refused.remove(&stream);
            }
        }
    }

    fn handle(&mut self, stream: u64, wait_ms: u32, room: Option<Taken>, message: Message) {
        let answering = &self.answering;
        let node = self.caller.node;
        if self.caller.is_member && !answering.directory.is_still_member(node) {
            // A removed node may not be notified yet, and must not get confirmations for partitions
            // that other nodes own now. Its connections end here if they have not ended yet.
            answering.callers.dismiss(node);
            return;
        }
        let wait = Duration::from_millis(u64::from(wait_ms));
        let deadline = answering.runtime.now().plus(wait);
        let bytes = message.len();
        let taken = match self.answers.take(bytes, &answering.settings) {
            NowTaken::Yes(taken) => taken,
            NowTaken::NoRoom => return self.answers.outbox.signal(FrameHead::Overload { stream }),
            // The farewell means that the request was not carried out.
            NowTaken::Leaving => return,
        };
        match answering.service.handle(self.caller, message, deadline) {
            Served::Now(answer) => {
                let pushed = self.answers.outbox.push(stream, Opening::Answer, answer);
                if let Err(NotTaken::Full(answer)) = pushed {
                    let answer = Box::pin(std::future::ready(answer));
                    self.await_answer(stream, wait, (bytes, room), answer);
                }
            }
            Served::Overload => self.answers.outbox.signal(FrameHead::Overload { stream }),
            Served::Later(answer) => self.await_answer(stream, wait, (bytes, room), answer),
        }
        drop(taken);
    }

    fn await_answer(
        &self,
        stream: u64,
        wait: Duration,
        (bytes, room): (usize, Option<Taken>),
        answer: Pin<Box<dyn Future<Output = Message> + Send>>,
    ) {
        let runtime = self.answering.runtime.clone();
        let answers = self.answers.clone();
        let work = async move {
            let answering = async {
                let answer = answer.await;
                // "Overload" would mean that nothing was carried out. The answer waits for room, and
                // counts as in progress meanwhile, so that further requests are refused before they are
                // carried out.
                let outbox = &answers.outbox;
                let push = outbox.push_when_drained(stream, Opening::Answer, answer);
                push.await;
            };
            // The caller does not wait beyond its deadline.
            let _answered_or_late = runtime.timeout(wait, answering).await;
            answers.remove(stream);
            drop(room);
        };
        let spawn = || self.answering.runtime.spawn("peer request", work);
        self.answers.insert(stream, bytes, spawn);
    }
}
