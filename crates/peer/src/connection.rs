//! A connection after its hello: one task writes the outbox, one reads frames.
//!
//! A connection on which nothing arrives for a while is pinged, and given up when nothing arrives
//! afterwards. So requests do not wait until their deadlines for a peer that vanished without
//! closing the connection.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use kvorum_runtime::Runtime;
use kvorum_tls::{SecureReadHalf, SecureWriteHalf};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::error::ProtocolError;
use crate::frame::{Frame, FrameHead, take_frame};
use crate::outbox::{Batch, Outbox};

/// Room reserved for reads.
const READ_BYTES: usize = 64 * 1024;
/// With less room than this, more is reserved before a read. Frames keep the buffer that they
/// arrived in, so room reserved for each read would be a buffer for each.
const READ_BYTES_MIN: usize = 8 * 1024;
/// Number of looks within the longest silence. A look that finds no data sends a ping, and the next
/// one gives the connection up: within the longest silence, but not before two thirds of it.
const LOOKS: u32 = 3;

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the peer closed it")]
    Closed,
    #[error("{0}")]
    Lost(#[from] io::Error),
    #[error("the peer does not read its replies")]
    NotRead,
    #[error("the peer has newer ones, or is no member any more")]
    Dismissed,
    #[error("the peer closed the connection in order")]
    Farewell,
    #[error("nothing came for {} ms or more", .0.as_millis())]
    Silent(Duration),
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
}

enum Happened {
    Read(io::Result<usize>),
    LookIsDue,
}

/// Signs of life of the peer between two looks.
#[derive(Default)]
struct Hearing {
    /// True if something arrived since the last look.
    is_heard: bool,
    is_pinged: bool,
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Heard,
    /// Nothing arrived since the last look: ping the peer.
    Ask,
    /// Nothing arrived after the ping either.
    GiveUp,
}

impl Hearing {
    fn heard(&mut self) {
        self.is_heard = true;
    }

    fn look(&mut self) -> Look {
        let is_heard = std::mem::take(&mut self.is_heard);
        let is_pinged = std::mem::replace(&mut self.is_pinged, !is_heard);
        match (is_heard, is_pinged) {
            (true, _) => Look::Heard,
            (false, false) => Look::Ask,
            (false, true) => Look::GiveUp,
        }
    }
}

/// Writes until the outbox is closed or the connection breaks, then closes the outbox.
pub(crate) async fn write(outbox: Arc<Outbox>, mut stream: SecureWriteHalf) {
    while let Some(mut batch) = outbox.next_batch().await {
        if let Err(error) = send(&mut stream, &mut batch).await {
            tracing::debug!(event = "peer_write_failed", error = %error);
            break;
        }
    }
    outbox.close();
    // The peer sees the end either way.
    let _ended_or_broken = stream.shutdown().await;
}

/// Writes a whole batch; TLS holds back the last part until a flush.
async fn send(stream: &mut SecureWriteHalf, batch: &mut Batch) -> io::Result<()> {
    stream.write_all_buf(batch).await?;
    stream.flush().await
}

/// Reads frames and hands all but pings to `take` until the connection ends.
pub(crate) async fn read(
    runtime: &Runtime,
    stream: &mut SecureReadHalf,
    outbox: &Outbox,
    silence_max: Duration,
    mut take: impl FnMut(Frame) -> Result<(), ProtocolError>,
) -> Ended {
    let mut input = BytesMut::new();
    let mut hearing = Hearing::default();
    // One timer for the connection instead of one for every read.
    let look_period = silence_max / LOOKS;
    let mut look = pin!(runtime.sleep(look_period));
    loop {
        if input.capacity() - input.len() < READ_BYTES_MIN {
            input.reserve(READ_BYTES);
        }
        let happened = {
            let mut reading = pin!(stream.read_buf(&mut input));
            poll_fn(|context| match reading.as_mut().poll(context) {
                Poll::Ready(read) => Poll::Ready(Happened::Read(read)),
                Poll::Pending => look.as_mut().poll(context).map(|()| Happened::LookIsDue),
            })
            .await
        };
        match happened {
            Happened::Read(Ok(0)) => return Ended::Closed,
            Happened::Read(Ok(_)) => hearing.heard(),
            Happened::Read(Err(error)) => return Ended::Lost(error),
            Happened::LookIsDue => {
                match hearing.look() {
                    Look::Heard => {}
                    Look::Ask => outbox.signal(FrameHead::Ping),
                    Look::GiveUp => return Ended::Silent(look_period * 2),
                }
                look.set(runtime.sleep(look_period));
                continue;
            }
        }
        if outbox.is_overrun() {
            return Ended::NotRead;
        }
        loop {
            match take_frame(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) if frame.head == FrameHead::Farewell => return Ended::Farewell,
                Ok(Some(frame)) => {
                    if let Err(error) = answer_ping_or(frame, outbox, &mut take) {
                        return error.into();
                    }
                }
                Err(error) => return error.into(),
            }
        }
    }
}

fn answer_ping_or(
    frame: Frame,
    outbox: &Outbox,
    take: &mut impl FnMut(Frame) -> Result<(), ProtocolError>,
) -> Result<(), ProtocolError> {
    match frame.head {
        FrameHead::Ping => outbox.signal(FrameHead::Pong),
        FrameHead::Pong => {}
        _ => return take(frame),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_once_and_given_up_unless_something_comes() {
        let mut hearing = Hearing::default();
        hearing.heard();
        assert_eq!(hearing.look(), Look::Heard);
        assert_eq!(hearing.look(), Look::Ask);
        hearing.heard();
        assert_eq!(hearing.look(), Look::Heard);
        assert_eq!(hearing.look(), Look::Ask);
        assert_eq!(hearing.look(), Look::GiveUp);
    }
}
