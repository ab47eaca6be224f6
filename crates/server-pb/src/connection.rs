//! One connection: bytes in, frames out of them, replies back in order.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use kvorum_coordinator::{Coordinator, RequestError};
use kvorum_protocol::frame::{self, FrameDecoder};
use kvorum_runtime::{COUNTED_BYTES_MIN, Moment, Room, Stream, Taken};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fault_log::{Fault, FaultLog, FaultQuotas};
use crate::output::Output;
use crate::seats::Seat;
use crate::settings::ServerSettings;

/// Room made for a read before a request, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// Least room to read into within a request, in bytes.
const READ_BYTES_MIN: usize = 1024;
/// After a frame longer than this, in bytes, the input buffer is freed.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// Replies of a pipelined batch are sent before its end when they exceed this, in bytes.
const SEND_BYTES: usize = 256 * 1024;
/// Time for which a peer that broke the framing may continue sending before the connection is
/// dropped. A socket closed with unread input is reset, which would destroy the error before it is
/// read.
const LINGER: Duration = Duration::from_secs(1);
/// Time for a large frame, plus a second for each [`FRAME_BYTES_PER_SECOND_MIN`] bytes. From its first
/// byte on, the frame holds room that other requests need.
const FRAME_PATIENCE: Duration = Duration::from_secs(60);
const FRAME_BYTES_PER_SECOND_MIN: usize = 64 * 1024;
/// The client id that Riak gives to connections that set none.
const CLIENT_ID: &[u8] = &[0; 4];

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) settings: ServerSettings,
    /// Room for requests and replies that are larger than a connection's usual buffers.
    pub(crate) room: Room,
    pub(crate) fault_quotas: Arc<FaultQuotas>,
}

/// A connection and its buffers.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    /// Replies that are not sent yet.
    pub(crate) output: Output,
    /// The client's id, which is only returned to the client.
    pub(crate) client_id: Bytes,
    /// Start of the request that is being answered. A pipelined request starts at the end of the
    /// one before, since the client causes that wait.
    pub(crate) arrived: Moment,
    faults: FaultLog,
    stream: Stream,
    input: BytesMut,
    decoder: FrameDecoder,
    /// True when a frame made the input buffer large.
    is_swollen: bool,
    /// The state of a large frame that has arrived in part.
    coming: Coming,
}

/// The incomplete frame at the front of the input.
enum Coming {
    /// No frame is large.
    Small,
    /// The frame has room, until its time limit.
    Admitted { _room: Taken, until: Moment },
    /// There is no room: this many bytes are skipped before the frame is refused.
    Refused { bytes: usize },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    InStep,
    Broken,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, stream: Stream, peer: SocketAddr) -> Self {
        let decoder = FrameDecoder::new(shared.settings.frame_bytes_max);
        let arrived = shared.coordinator.runtime().now();
        let faults = FaultLog::new(peer, shared.fault_quotas.clone());
        Self {
            shared,
            output: Output::default(),
            client_id: Bytes::from_static(CLIENT_ID),
            arrived,
            faults,
            stream,
            input: BytesMut::new(),
            decoder,
            is_swollen: false,
            coming: Coming::Small,
        }
    }

    /// Answers requests until the peer leaves or the server stops.
    pub(crate) async fn run(mut self, seat: &Seat) {
        if let Err(error) = self.serve(seat).await {
            // Lost connections are normal.
            let peer = self.stream.peer_address();
            tracing::debug!(event = "pb_connection_lost", peer = %peer, error = %error);
        }
    }

    async fn serve(&mut self, seat: &Seat) -> io::Result<()> {
        loop {
            let framing = self.answer_received().await?;
            self.send().await?;
            if framing == Framing::Broken {
                return self.part_from_broken_peer().await;
            }
            self.shrink();
            match seat.unless_stopping(self.receive_in_time()).await {
                None => break,
                Some(Ok(0)) => {
                    if !self.input.is_empty() {
                        self.note(Fault::Truncated, &"connection ended within a frame");
                    }
                    break;
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(_)) => self.arrived = self.shared.coordinator.runtime().now(),
            }
        }
        self.stream.shutdown().await
    }

    /// Answers every whole request in the input.
    async fn answer_received(&mut self) -> io::Result<Framing> {
        let mut is_first = true;
        loop {
            if !self.pass_over_refused() {
                return Ok(Framing::InStep);
            }
            match self.decoder.decode(&mut self.input) {
                Ok(Some(frame)) => {
                    if !is_first {
                        self.arrived = self.shared.coordinator.runtime().now();
                    }
                    is_first = false;
                    self.is_swollen |= frame.payload.len() > KEPT_BYTES_MAX;
                    self.answer(frame).await?;
                    self.coming = Coming::Small;
                    if self.output.len() >= SEND_BYTES {
                        self.send().await?;
                    }
                }
                Ok(None) => {
                    if !self.admit_coming() {
                        continue;
                    }
                    return Ok(Framing::InStep);
                }
                Err(error) => {
                    self.note(Fault::BadFrame, &error);
                    let text = format!("Invalid message packet, reason: {error}");
                    frame::encode_error(text.as_bytes(), self.output.buffer());
                    return Ok(Framing::Broken);
                }
            }
        }
    }

    /// Takes room for the arriving frame, if it is large; false when there is no room.
    fn admit_coming(&mut self) -> bool {
        let is_new = matches!(self.coming, Coming::Small);
        let large = || frame::announced_bytes(&self.input).filter(|it| *it > COUNTED_BYTES_MIN);
        let Some(bytes) = is_new.then(large).flatten() else {
            return true;
        };
        match self.shared.room.take(bytes) {
            Some(room) => {
                let seconds = bytes / FRAME_BYTES_PER_SECOND_MIN;
                let patience = FRAME_PATIENCE + Duration::from_secs(seconds as u64);
                let until = self.shared.coordinator.runtime().now().plus(patience);
                self.coming = Coming::Admitted { _room: room, until };
            }
            None => self.coming = Coming::Refused { bytes },
        }
        matches!(self.coming, Coming::Admitted { .. })
    }

    /// Drops the received bytes of a refused frame, and answers it at its end; false before that.
    fn pass_over_refused(&mut self) -> bool {
        let Coming::Refused { bytes } = &mut self.coming else {
            return true;
        };
        let come = self.input.len().min(*bytes);
        self.input.advance(come);
        *bytes -= come;
        if *bytes > 0 {
            return false;
        }
        self.coming = Coming::Small;
        let text = RequestError::Overload.to_string();
        frame::encode_error(text.as_bytes(), self.output.buffer());
        true
    }

    /// Notes a fault of the peer.
    pub(crate) fn note(&mut self, fault: Fault, detail: &dyn fmt::Display) {
        let now = self.shared.coordinator.runtime().now();
        self.faults.note(fault, detail, now);
    }

    /// Sends the pending output.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        let is_large = self.output.len() > COUNTED_BYTES_MIN;
        let _room = is_large.then(|| self.shared.room.take_anyway(self.output.len()));
        self.output.send(&mut self.stream).await
    }

    /// Reads the bytes that have arrived; 0 at the end of the stream.
    async fn receive(&mut self) -> io::Result<usize> {
        // Reuses the front of the buffer, which no payload holds any more.
        if self.input.is_empty() || self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            self.input.reserve(READ_BYTES);
        }
        self.stream.read_buf(&mut self.input).await
    }

    /// The same, but fails when a large frame is not complete in time.
    async fn receive_in_time(&mut self) -> io::Result<usize> {
        let Coming::Admitted { until, .. } = self.coming else {
            return self.receive().await;
        };
        let runtime = self.shared.coordinator.runtime().clone();
        let patience = until.since(runtime.now());
        match runtime.timeout(patience, self.receive()).await {
            Ok(received) => received,
            Err(_) => {
                let text = "a large request did not come to its end in time";
                self.note(Fault::TooSlow, &text);
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }

    fn shrink(&mut self) {
        if self.is_swollen && self.input.len() <= READ_BYTES {
            self.input = BytesMut::from(&self.input[..]);
            self.is_swollen = false;
        }
    }

    async fn part_from_broken_peer(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let runtime = self.shared.coordinator.runtime().clone();
        let rest = async {
            while self.receive().await? > 0 {
                self.input.clear();
            }
            Ok(())
        };
        // After that time, the peer is disconnected.
        runtime.timeout(LINGER, rest).await.unwrap_or(Ok(()))
    }
}
