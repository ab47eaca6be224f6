//! A connection after its hello: one task writes what the outbox holds, one reads frames.
//!
//! A connection on which nothing comes for a while is pinged, and given up when nothing comes then
//! either: a peer that vanished without a word must not keep requests waiting until their deadlines.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use kvorum_runtime::Runtime;
use kvorum_tls::{SecureReadHalf, SecureWriteHalf};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::error::ProtocolError;
use crate::frame::{Frame, FrameHead, take_frame};
use crate::outbox::{Batch, Outbox};

/// Room made for each read.
const READ_BYTES: usize = 64 * 1024;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the peer closed it")]
    Closed,
    #[error("{0}")]
    Lost(#[from] io::Error),
    #[error("the peer reads nothing of what it causes")]
    NotRead,
    #[error("the peer has newer ones, or is no member any more")]
    Dismissed,
    #[error("nothing came for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
}

/// Writes until the outbox is closed or the connection breaks; closes the outbox then.
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

/// Writes a batch to its end; TLS keeps the last part back until it is flushed.
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
    let mut is_pinged = false;
    loop {
        input.reserve(READ_BYTES);
        match runtime
            .timeout(silence_max / 2, stream.read_buf(&mut input))
            .await
        {
            Ok(Ok(0)) => return Ended::Closed,
            Ok(Ok(_)) => is_pinged = false,
            Ok(Err(error)) => return Ended::Lost(error),
            Err(_) if is_pinged => return Ended::Silent(silence_max),
            Err(_) => {
                is_pinged = true;
                outbox.signal(FrameHead::Ping);
                continue;
            }
        }
        if outbox.is_overrun() {
            return Ended::NotRead;
        }
        loop {
            match take_frame(&mut input) {
                Ok(None) => break,
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
