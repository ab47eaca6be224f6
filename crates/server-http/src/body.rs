//! Bodies: reading those of requests, and the parts of those of answers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use kvorum_runtime::{COUNTED_BYTES_MIN, Room, Runtime, Taken};

/// Longest pause of a client within a body before the request is given up. Riak's servers waited as
/// long.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Time for a whole body: this, and a second more for each unit of this many bytes that are allowed.
const BODY_TIME_MAX: Duration = Duration::from_secs(300);
const BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

/// Bytes reserved for a body of any announced length before any of it has come.
const RESERVED_BYTES_MAX: u64 = 1 << 20;

/// The bytes of an unwanted body that are read, and the time for that, so that the client can
/// finish writing and read the answer.
const DISCARDED_BYTES_MAX: u64 = 128 << 20;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(10);

/// The body of a request, not read yet.
pub(crate) struct RequestBody {
    incoming: Incoming,
    bytes_max: u64,
    room: Room,
    /// Room taken for a large body, for as long as the request is in progress.
    taken: Option<Taken>,
}

/// The reason why a body was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// Longer than allowed.
    #[error("the body is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    /// Large, and requests in progress leave no room for it.
    #[error("overload")]
    NoRoom,
    /// The client stopped sending.
    #[error("the body did not arrive")]
    TooSlow,
    /// Not framed as HTTP requires, or cut short.
    #[error("the body cannot be read: {0}")]
    Broken(hyper::Error),
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, bytes_max: u64, room: Room) -> Self {
        Self {
            incoming,
            bytes_max,
            room,
            taken: None,
        }
    }

    /// The whole body. One that came in one piece is not copied.
    pub(crate) async fn read(&mut self, runtime: &Runtime) -> Result<Bytes, BodyError> {
        let time = BODY_TIME_MAX + Duration::from_secs(self.bytes_max / BYTES_PER_SECOND_MIN);
        let read = runtime.timeout(time, self.read_all(runtime)).await;
        read.unwrap_or(Err(BodyError::TooSlow))
    }

    async fn read_all(&mut self, runtime: &Runtime) -> Result<Bytes, BodyError> {
        let announced = self.incoming.size_hint().lower();
        if announced > self.bytes_max {
            return Err(self.too_large());
        }
        self.take_room(usize::try_from(announced).unwrap_or(usize::MAX))?;
        let Some(first) = self.next_data(runtime).await? else {
            return Ok(Bytes::new());
        };
        if self.incoming.is_end_stream() {
            return if first.len() as u64 > self.bytes_max {
                Err(self.too_large())
            } else {
                Ok(first)
            };
        }
        let reserved = announced.min(RESERVED_BYTES_MAX);
        let mut body = BytesMut::with_capacity(usize::try_from(reserved).unwrap_or(0));
        let mut piece = Some(first);
        while let Some(data) = piece {
            if (body.len() + data.len()) as u64 > self.bytes_max {
                return Err(self.too_large());
            }
            self.take_room(body.len() + data.len())?;
            body.extend_from_slice(&data);
            piece = self.next_data(runtime).await?;
        }
        Ok(body.freeze())
    }

    /// Reads the rest of a body that an early answer makes useless.
    pub(crate) async fn discard(&mut self, runtime: &Runtime) {
        if self.incoming.is_end_stream() || self.incoming.size_hint().lower() > DISCARDED_BYTES_MAX
        {
            return;
        }
        let drain = async {
            let mut left = DISCARDED_BYTES_MAX;
            while let Ok(Some(data)) = self.next_data(runtime).await {
                left = left.saturating_sub(data.len() as u64);
                if left == 0 {
                    return;
                }
            }
        };
        // The body has ended or is given up: the answer is next.
        let _ = runtime.timeout(DISCARD_TIME_MAX, drain).await;
    }

    /// Takes room for a body of this many bytes in all, if that is large.
    fn take_room(&mut self, bytes: usize) -> Result<(), BodyError> {
        if bytes <= COUNTED_BYTES_MIN {
            return Ok(());
        }
        let taken = match self.taken.as_mut() {
            Some(taken) => taken,
            None => self.taken.insert(self.room.take_anyway(0)),
        };
        let held = usize::try_from(taken.bytes()).unwrap_or(usize::MAX);
        match bytes.saturating_sub(held) {
            0 => Ok(()),
            more if taken.grow(more) => Ok(()),
            _ => Err(BodyError::NoRoom),
        }
    }

    fn too_large(&self) -> BodyError {
        BodyError::TooLarge {
            bytes_max: self.bytes_max,
        }
    }

    /// The next piece that holds data; trailers are passed over.
    async fn next_data(&mut self, runtime: &Runtime) -> Result<Option<Bytes>, BodyError> {
        loop {
            let incoming = &mut self.incoming;
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context));
            let frame = runtime.timeout(PAUSE_MAX, frame).await;
            match frame.map_err(|_| BodyError::TooSlow)? {
                None => return Ok(None),
                Some(Err(error)) => return Err(BodyError::Broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// Pieces of an answer that are made while it is sent. They are asked for only when the connection
/// can take them.
pub(crate) type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Abandoned>> + Send>>;

/// An answer cannot be continued: its connection is closed, so that the client notices.
#[derive(Debug, thiserror::Error)]
#[error("answer abandoned: {reason}")]
pub(crate) struct Abandoned {
    /// The reason.
    pub(crate) reason: String,
}

/// The body of an answer.
pub(crate) enum Body {
    /// Known from the beginning; sent as it is.
    Whole(Bytes),
    /// Sent in chunks as it is made.
    Pieces(Pieces),
}

impl Body {
    pub(crate) const EMPTY: Self = Self::Whole(Bytes::new());

    /// Takes room for the body, if it is large, until the last of it is sent.
    pub(crate) fn count_in(&mut self, room: &Room) {
        if let Self::Whole(bytes) = self
            && bytes.len() > COUNTED_BYTES_MIN
        {
            *bytes = Bytes::from_owner(Counted {
                _room: room.take_anyway(bytes.len()),
                bytes: std::mem::take(bytes),
            });
        }
    }
}

/// Bytes that take room for as long as they are referenced.
struct Counted {
    bytes: Bytes,
    _room: Taken,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Abandoned;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Abandoned>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Pieces(pieces) => pieces
                .as_mut()
                .poll_next(context)
                .map(|next| next.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}
