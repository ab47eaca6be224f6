//! Sockets: TCP in production, pipes in memory in a simulation, one type for both.
//!
//! The type is an enum and not a trait object: a read or write then costs a branch and not a
//! virtual call.

mod link;
mod listen_options;
mod simulated;
mod stream;

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use link::Link;
pub(crate) use link::Links;
pub use listen_options::ListenOptions;
pub(crate) use simulated::Network;
use simulated::SimulatedListener;
pub use stream::{ReadHalf, Stream, WriteHalf};

use crate::{Result, RuntimeError};

/// A listening socket. Dropping it frees the address.
#[derive(Debug)]
pub struct Listener {
    kind: ListenerKind,
    address: SocketAddr,
}

#[derive(Debug)]
enum ListenerKind {
    Tcp(TcpListener),
    Simulated(SimulatedListener),
}

impl Listener {
    pub(crate) fn simulated(listener: SimulatedListener) -> Self {
        let address = listener.address();
        Self {
            kind: ListenerKind::Simulated(listener),
            address,
        }
    }

    /// The address listened on, with the port that the system chose.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a connection, and returns it with the caller's address. Dropping the future loses no
    /// connection. Several tasks may accept from one listener.
    pub async fn accept(&self) -> Result<(Stream, SocketAddr)> {
        match &self.kind {
            ListenerKind::Simulated(listener) => {
                let pipe = listener.accept().await;
                let peer = pipe.peer;
                Ok((Stream::simulated(pipe), peer))
            }
            ListenerKind::Tcp(listener) => {
                let accepted = listener.accept().await;
                let failed = |source| RuntimeError::Accept {
                    address: self.address,
                    source,
                };
                let (stream, peer) = accepted.map_err(failed)?;
                Ok((Stream::tcp(stream, peer), peer))
            }
        }
    }
}

/// Listens on a TCP port. Must be called inside the runtime.
pub(crate) fn listen(address: SocketAddr, options: ListenOptions) -> Result<Listener> {
    let failed = |source| RuntimeError::listen(address, source);
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    let socket = socket.map_err(failed)?;
    // Connections of the last run in TIME_WAIT do not delay a restart.
    socket.set_reuseaddr(true).map_err(failed)?;
    if options.reuse_port {
        socket.set_reuseport(true).map_err(failed)?;
    }
    socket.bind(address).map_err(failed)?;
    let listener = socket.listen(options.backlog).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Listener {
        kind: ListenerKind::Tcp(listener),
        address,
    })
}

/// Connects over TCP.
pub(crate) async fn connect(address: SocketAddr) -> Result<Stream> {
    let connected = TcpStream::connect(address).await;
    let stream = connected.map_err(|source| RuntimeError::connect(address, source))?;
    Ok(Stream::tcp(stream, address))
}
