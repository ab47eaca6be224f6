//! Failures of a request, by the caller's possible reaction.

use std::io;
use std::time::Duration;

use kvorum_protocol::MessageCode;
use kvorum_protocol::frame::FrameError;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection could not be made, or broke.
    #[error("connection lost: {operation}")]
    ConnectionLost {
        /// The operation under way.
        operation: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Answers of a failed or abandoned request are still on their way, without a reader.
    #[error("connection given up after an earlier failure or an abandoned request")]
    OutOfStep,
    /// No answer came in time.
    #[error("no answer within {after:?}")]
    Timeout {
        /// The limit that passed.
        after: Duration,
    },
    /// The server refused.
    #[error("the server answers: {text}")]
    Server {
        /// The server's text; lossy if it is not UTF-8.
        text: String,
        /// The server's code, which is 0 in practice.
        code: u32,
    },
    /// The answer belongs to another request.
    #[error("answered with {got} instead of {expected}")]
    UnexpectedAnswer {
        /// The code of a proper answer.
        expected: MessageCode,
        /// The actual code.
        got: MessageCode,
    },
    /// A frame cannot be read, or the request does not fit one.
    #[error("frame cannot be handled")]
    Frame {
        /// The error in it.
        #[from]
        source: FrameError,
    },
}

/// Kinds of an [`Error`], by the caller's possible reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Connect again. The request may or may not have taken effect.
    ConnectionLost,
    /// Connect again, perhaps with a longer timeout. The request may or may not have taken effect.
    Timeout,
    /// Read the text and change the request. The connection stays usable.
    Server,
    /// Report a bug of the client or of the server, and connect again.
    Protocol,
}

impl Error {
    /// The kind of the error, by the caller's possible reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::ConnectionLost { .. } | Error::OutOfStep => ErrorKind::ConnectionLost,
            Error::Timeout { .. } => ErrorKind::Timeout,
            Error::Server { .. } => ErrorKind::Server,
            Error::UnexpectedAnswer { .. } | Error::Frame { .. } => ErrorKind::Protocol,
        }
    }
}
