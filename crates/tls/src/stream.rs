//! A connection, encrypted or not, and its halves.
//!
//! It is an enum, as the runtime's sockets are: without TLS, a read or write costs one more branch,
//! but no allocation and no virtual call.

use kvorum_runtime::{ReadHalf, Stream, WriteHalf};
use tokio_rustls::TlsStream;
use tokio_util::either::Either;

/// A connection: plain, or encrypted between two ends that have proven their identity.
pub type SecureStream = Either<Stream, Box<TlsStream<Stream>>>;

/// The read half of a connection: plain or encrypted.
pub type SecureReadHalf = Either<ReadHalf, tokio::io::ReadHalf<TlsStream<Stream>>>;

/// The write half of a connection: plain or encrypted. Written bytes may wait in it until it is
/// flushed.
pub type SecureWriteHalf = Either<WriteHalf, tokio::io::WriteHalf<TlsStream<Stream>>>;

/// A plain connection.
pub fn in_the_clear(stream: Stream) -> SecureStream {
    Either::Left(stream)
}

/// True for a connection that is encrypted.
pub fn is_encrypted(stream: &SecureStream) -> bool {
    matches!(stream, Either::Right(_))
}

/// Splits a connection into halves for two tasks. An encrypted one ends when both are dropped or
/// the write half is shut down.
pub fn into_split(stream: SecureStream) -> (SecureReadHalf, SecureWriteHalf) {
    match stream {
        Either::Left(stream) => {
            let (read, write) = stream.into_split();
            (Either::Left(read), Either::Left(write))
        }
        Either::Right(stream) => {
            let (read, write) = tokio::io::split(*stream);
            (Either::Right(read), Either::Right(write))
        }
    }
}
