//! A connection, and its two halves for a reading and a writing task.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::either::Either;

use super::simulated::Pipe;

/// A connection: bytes in both directions, read and written through tokio's traits. Vectored writes
/// are one system call.
#[derive(Debug)]
pub struct Stream {
    /// A TCP connection, or a pipe in memory.
    inner: Either<TcpStream, DuplexStream>,
    local: SocketAddr,
    peer: SocketAddr,
}

/// The read half of a TCP connection or of a pipe in memory.
pub type ReadHalf = Either<OwnedReadHalf, tokio::io::ReadHalf<DuplexStream>>;

/// The write half of a connection. Dropping it ends the output of a TCP connection; a pipe in
/// memory ends when both halves are dropped or this one is shut down.
pub type WriteHalf = Either<OwnedWriteHalf, tokio::io::WriteHalf<DuplexStream>>;

impl Stream {
    pub(crate) fn tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        // A connected socket has an address; "none" means that the system failed to return it.
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        let local = stream.local_addr().unwrap_or(none);
        Self {
            inner: Either::Left(stream),
            local,
            peer,
        }
    }

    pub(crate) fn simulated(pipe: Pipe) -> Self {
        Self {
            inner: Either::Right(pipe.stream),
            local: pipe.local,
            peer: pipe.peer,
        }
    }

    /// The address of this end.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The address of the other end.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// Sends written bytes at once (TCP_NODELAY) instead of waiting for more.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match &self.inner {
            Either::Left(stream) => stream.set_nodelay(nodelay),
            Either::Right(_) => Ok(()),
        }
    }

    /// Makes the system probe the other end at intervals (SO_KEEPALIVE), so that a connection to a
    /// dead machine ends.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        match &self.inner {
            Either::Left(stream) => Ok(rustix::net::sockopt::set_socket_keepalive(
                stream, keepalive,
            )?),
            Either::Right(_) => Ok(()),
        }
    }

    /// Splits the connection into halves for two tasks. Dropping the write half ends the output.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self.inner {
            Either::Left(stream) => {
                let (read, write) = stream.into_split();
                (Either::Left(read), Either::Left(write))
            }
            Either::Right(stream) => {
                let (read, write) = tokio::io::split(stream);
                (Either::Right(read), Either::Right(write))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
