//! One connection: its buffers, its timeouts, and its step.
//!
//! A connection is in step while no answer is on its way without a reader. The mark is cleared before the
//! first byte of a request is sent and set again after its last answer has arrived. So after a failure, a
//! timeout or a dropped future in between, a request can never get another one's answer.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use kvorum_protocol::frame::{Frame, FrameDecoder};
use kvorum_protocol::{CodedMessage, MessageCode, pb};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time;

use crate::error::Error;
use crate::settings::ClientSettings;

/// Room for a read when less than [`READ_BYTES_MIN`] is left.
const READ_BYTES: usize = 16 * 1024;
/// The least room for a read, in bytes.
const READ_BYTES_MIN: usize = 2 * 1024;
/// An output buffer larger than this is freed after the request, in bytes.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    outgoing: BytesMut,
    incoming: BytesMut,
    decoder: FrameDecoder,
    answer_timeout: Option<Duration>,
    in_step: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S, settings: &ClientSettings) -> Connection<S> {
        Connection {
            stream,
            outgoing: BytesMut::with_capacity(READ_BYTES),
            incoming: BytesMut::with_capacity(READ_BYTES),
            decoder: FrameDecoder::new(settings.frame_bytes_max),
            answer_timeout: settings.answer_timeout,
            in_step: true,
        }
    }

    pub(crate) fn is_in_step(&self) -> bool {
        self.in_step
    }

    /// The empty output buffer, for the next request.
    pub(crate) fn begin(&mut self) -> Result<&mut BytesMut, Error> {
        if !self.in_step {
            return Err(Error::OutOfStep);
        }
        if self.outgoing.capacity() > KEPT_BYTES_MAX {
            self.outgoing = BytesMut::with_capacity(READ_BYTES);
        }
        self.outgoing.clear();
        Ok(&mut self.outgoing)
    }

    /// Sends the request and reads its one answer, whatever its code; an error answer is an error.
    pub(crate) async fn exchange(&mut self) -> Result<Frame, Error> {
        self.in_step = false;
        let frame = within(self.answer_timeout, async {
            self.send_all().await?;
            self.receive().await
        })
        .await?;
        if frame.code == MessageCode::RPB_ERROR_RESP {
            return Err(self.refused(&frame));
        }
        self.in_step = true;
        Ok(frame)
    }

    /// The same for a request with one possible answer code.
    pub(crate) async fn exchange_expecting(&mut self, code: MessageCode) -> Result<Frame, Error> {
        let frame = self.exchange().await?;
        if frame.code != code {
            self.in_step = false; // whose answer was that, and where is ours?
            return Err(Error::UnexpectedAnswer {
                expected: code,
                got: frame.code,
            });
        }
        Ok(frame)
    }

    /// The same for an answer with fields.
    pub(crate) async fn exchange_for<M: CodedMessage>(&mut self) -> Result<M, Error> {
        let frame = self.exchange_expecting(M::CODE).await?;
        frame.decode().map_err(|source| {
            self.in_step = false;
            Error::Frame { source }
        })
    }

    /// Sends the request; its answers are read by [`Connection::next_answer`].
    pub(crate) async fn send(&mut self) -> Result<(), Error> {
        self.in_step = false;
        within(self.answer_timeout, self.send_all()).await
    }

    /// Reads one of several answers; an error is the last one.
    pub(crate) async fn next_answer<M: CodedMessage>(&mut self) -> Result<M, Error> {
        let frame = within(self.answer_timeout, self.receive()).await?;
        match frame.code {
            code if code == M::CODE => Ok(frame.decode()?),
            MessageCode::RPB_ERROR_RESP => Err(self.refused(&frame)),
            got => Err(Error::UnexpectedAnswer {
                expected: M::CODE,
                got,
            }),
        }
    }

    /// Notes that the last answer has arrived.
    pub(crate) fn end(&mut self) {
        self.in_step = true;
    }

    /// Sends the output buffer while reading `count` frames, errors included.
    ///
    /// Both at once: a server whose answers are not read may stop reading requests.
    pub(crate) async fn exchange_many(&mut self, count: usize) -> Result<Vec<Frame>, Error> {
        self.in_step = false;
        let Connection {
            stream,
            outgoing,
            incoming,
            decoder,
            answer_timeout,
            ..
        } = self;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sending = async {
            writer
                .write_all(outgoing)
                .await
                .map_err(|source| lost("sending requests", source))?;
            writer
                .flush()
                .await
                .map_err(|source| lost("sending requests", source))
        };
        let receiving = async {
            let mut frames = Vec::new();
            while frames.len() < count {
                let next = receive_from(&mut reader, incoming, decoder);
                frames.push(within(*answer_timeout, next).await?);
            }
            Ok(frames)
        };
        let ((), frames) = tokio::try_join!(sending, receiving)?;
        self.in_step = true;
        Ok(frames)
    }

    /// The server's refusal; if it is readable, the connection stays usable.
    fn refused(&mut self, frame: &Frame) -> Error {
        match frame.decode::<pb::RpbErrorResp>() {
            Ok(error) => {
                self.in_step = true;
                let text = String::from_utf8_lossy(&error.errmsg).into_owned();
                Error::Server {
                    text,
                    code: error.errcode,
                }
            }
            Err(source) => Error::Frame { source },
        }
    }

    async fn send_all(&mut self) -> Result<(), Error> {
        let sent = self.stream.write_all(&self.outgoing).await;
        sent.map_err(|source| lost("sending a request", source))?;
        // Buffering streams only: a socket has nothing to flush.
        self.stream
            .flush()
            .await
            .map_err(|source| lost("sending a request", source))
    }

    async fn receive(&mut self) -> Result<Frame, Error> {
        receive_from(&mut self.stream, &mut self.incoming, &self.decoder).await
    }
}

async fn receive_from<R: AsyncRead + Unpin>(
    reader: &mut R,
    incoming: &mut BytesMut,
    decoder: &FrameDecoder,
) -> Result<Frame, Error> {
    loop {
        if let Some(frame) = decoder.decode(incoming)? {
            return Ok(frame);
        }
        if incoming.capacity() - incoming.len() < READ_BYTES_MIN {
            incoming.reserve(READ_BYTES); // takes the front back once no answer is held
        }
        let read = reader.read_buf(incoming).await;
        if read.map_err(|source| lost("reading an answer", source))? == 0 {
            return Err(lost(
                "reading an answer",
                io::ErrorKind::UnexpectedEof.into(),
            ));
        }
    }
}

async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match limit {
        None => work.await,
        Some(after) => {
            let finished = time::timeout(after, work).await;
            finished.unwrap_or(Err(Error::Timeout { after }))
        }
    }
}

pub(crate) fn lost(operation: &'static str, source: io::Error) -> Error {
    Error::ConnectionLost { operation, source }
}
