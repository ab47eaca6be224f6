//! A connection, encrypted or not, and its halves.
//!
//! An enum, as the runtime's own sockets are: without TLS a read or write costs one more branch, and
//! neither an allocation nor a call through a table.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use kvorum_runtime::{ReadHalf, Stream, WriteHalf};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

/// A connection.
pub enum SecureStream {
    /// As the network carries it.
    Plain(Stream),
    /// Encrypted; both ends have proven themselves.
    Tls(Box<TlsStream<Stream>>),
}

/// The half of a connection that is read.
pub enum SecureReadHalf {
    /// As the network carries it.
    Plain(ReadHalf),
    /// Encrypted.
    Tls(tokio::io::ReadHalf<TlsStream<Stream>>),
}

/// The half of a connection that is written. What is written may wait in it until it is flushed.
pub enum SecureWriteHalf {
    /// As the network carries it.
    Plain(WriteHalf),
    /// Encrypted.
    Tls(tokio::io::WriteHalf<TlsStream<Stream>>),
}

impl SecureStream {
    /// True for one that is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Parts the connection into halves for two tasks. An encrypted one ends when both are dropped or
    /// the write half is shut down.
    pub fn into_split(self) -> (SecureReadHalf, SecureWriteHalf) {
        match self {
            Self::Plain(stream) => {
                let (read, write) = stream.into_split();
                (SecureReadHalf::Plain(read), SecureWriteHalf::Plain(write))
            }
            Self::Tls(stream) => {
                let (read, write) = tokio::io::split(*stream);
                (SecureReadHalf::Tls(read), SecureWriteHalf::Tls(write))
            }
        }
    }
}

impl From<Stream> for SecureStream {
    fn from(stream: Stream) -> Self {
        Self::Plain(stream)
    }
}

impl AsyncRead for SecureStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncRead for SecureReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_read(context, buffer),
            Self::Tls(half) => Pin::new(half).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl AsyncWrite for SecureWriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_write(context, bytes),
            Self::Tls(half) => Pin::new(half).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_write_vectored(context, parts),
            Self::Tls(half) => Pin::new(half).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(half) => half.is_write_vectored(),
            Self::Tls(half) => half.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_flush(context),
            Self::Tls(half) => Pin::new(half).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_shutdown(context),
            Self::Tls(half) => Pin::new(half).poll_shutdown(context),
        }
    }
}
