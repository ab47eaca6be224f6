//! A connection.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

use super::half::{ReadHalf, WriteHalf};
use super::simulated::Pipe;

/// A connection: bytes in both directions, read and written through tokio's traits. Vectored writes
/// are one system call.
#[derive(Debug)]
pub struct Stream {
    kind: StreamKind,
    local: SocketAddr,
    peer: SocketAddr,
}

#[derive(Debug)]
enum StreamKind {
    Tcp(TcpStream),
    Simulated(DuplexStream),
}

impl Stream {
    pub(crate) fn tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        // A socket that is connected has an address; should the system not tell, "none" is honest.
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        let local = stream.local_addr().unwrap_or(none);
        Self {
            kind: StreamKind::Tcp(stream),
            local,
            peer,
        }
    }

    pub(crate) fn simulated(pipe: Pipe) -> Self {
        Self {
            kind: StreamKind::Simulated(pipe.stream),
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

    /// Sends what is written at once (TCP_NODELAY) instead of waiting for more.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match &self.kind {
            StreamKind::Tcp(stream) => stream.set_nodelay(nodelay),
            StreamKind::Simulated(_) => Ok(()),
        }
    }

    /// Has the system ask now and then whether the other end is still there (SO_KEEPALIVE), so that the
    /// connection ends when it is not.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        match &self.kind {
            StreamKind::Tcp(stream) => Ok(rustix::net::sockopt::set_socket_keepalive(
                stream, keepalive,
            )?),
            StreamKind::Simulated(_) => Ok(()),
        }
    }

    /// Parts the connection into halves for two tasks. Dropping the write half ends the output.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self.kind {
            StreamKind::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            StreamKind::Simulated(stream) => {
                let (read, write) = tokio::io::split(stream);
                (ReadHalf::Simulated(read), WriteHalf::Simulated(write))
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
        match &mut self.kind {
            StreamKind::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            StreamKind::Simulated(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            StreamKind::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            StreamKind::Simulated(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            StreamKind::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            StreamKind::Simulated(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            StreamKind::Tcp(stream) => stream.is_write_vectored(),
            StreamKind::Simulated(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            StreamKind::Tcp(stream) => Pin::new(stream).poll_flush(context),
            StreamKind::Simulated(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            StreamKind::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            StreamKind::Simulated(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
