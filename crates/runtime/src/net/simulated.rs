//! The network of a simulation: every listener of the process by its address, and pipes in memory.
//!
//! It is instant and loses nothing, unless it has links ([`Links`]): then connections between two
//! machines go over the link between them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::link::Links;
use super::listen_options::ListenOptions;
use crate::{Result, RuntimeError};

/// Bytes in flight in each direction of a connection before its writer waits, as in a small socket
/// buffer.
const PIPE_BYTES: usize = 64 * 1024;

/// The first port for a listener that requests none. Connections get ports from the same range.
const FIRST_FREE_PORT: u16 = 49_152;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(super) stream: DuplexStream,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// All sockets of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Network {
    state: Mutex<State>,
    links: Option<Arc<Links>>,
}

#[derive(Debug, Default)]
struct State {
    listeners: BTreeMap<SocketAddr, mpsc::Sender<Pipe>>,
    ports_given: u16,
}

impl Network {
    /// A network whose machines are joined by links.
    pub(crate) fn over(links: Arc<Links>) -> Self {
        Self {
            state: Mutex::default(),
            links: Some(links),
        }
    }

    /// The addresses with a listener.
    pub(crate) fn listeners(&self) -> Vec<SocketAddr> {
        self.state.lock().listeners.keys().copied().collect()
    }

    pub(crate) fn listen(
        self: &Arc<Self>,
        asked: SocketAddr,
        options: ListenOptions,
    ) -> Result<SimulatedListener> {
        let mut state = self.state.lock();
        let mut address = asked;
        while address.port() == 0 || (asked.port() == 0 && state.listeners.contains_key(&address)) {
            address.set_port(state.free_port());
        }
        // Sharing of an address is not simulated, even where real sockets allow it.
        if state.listeners.contains_key(&address) {
            return Err(RuntimeError::AddressInUse { address });
        }
        let backlog = usize::try_from(options.backlog)
            .unwrap_or(usize::MAX)
            .max(1);
        let (sender, waiting) = mpsc::channel(backlog.min(1 << 16));
        state.listeners.insert(address, sender);
        let waiting = AsyncMutex::new(waiting);
        Ok(SimulatedListener {
            network: Arc::clone(self),
            address,
            waiting,
        })
    }

    /// Connects. Waits while the listener's backlog is full or a link is cut.
    pub(crate) async fn connect(&self, from: Option<IpAddr>, address: SocketAddr) -> Result<Pipe> {
        let from = from.unwrap_or_else(|| loopback_like(address.ip()));
        let links = self.links.as_ref().filter(|_| from != address.ip());
        if let Some(links) = links {
            links.cross(from, address.ip()).await;
        }
        let (listener, local) = {
            let mut state = self.state.lock();
            let found = state
                .listener(address)
                .ok_or(RuntimeError::Refused { address })?;
            (found, SocketAddr::new(from, state.free_port()))
        };
        let (ours, mut theirs) = tokio::io::duplex(PIPE_BYTES);
        if let Some(links) = links {
            let (far, at_listener) = tokio::io::duplex(PIPE_BYTES);
            links.carry((from, theirs), (address.ip(), far));
            theirs = at_listener;
        }
        let theirs = Pipe {
            stream: theirs,
            local: address,
            peer: local,
        };
        let sent = listener.send(theirs).await;
        sent.map_err(|_| RuntimeError::Refused { address })?;
        if let Some(links) = links {
            links.cross(address.ip(), from).await;
        }
        Ok(Pipe {
            stream: ours,
            local,
            peer: address,
        })
    }
}

impl State {
    /// The listener on an address, or on all addresses with this port.
    fn listener(&self, address: SocketAddr) -> Option<mpsc::Sender<Pipe>> {
        let any = match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let on_any = || self.listeners.get(&SocketAddr::new(any, address.port()));
        self.listeners.get(&address).or_else(on_any).cloned()
    }

    /// The next port in turn, from the range that systems use for this.
    fn free_port(&mut self) -> u16 {
        let port = FIRST_FREE_PORT + self.ports_given;
        self.ports_given = (self.ports_given + 1) % (u16::MAX - FIRST_FREE_PORT);
        port
    }
}

fn loopback_like(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

/// A listener in memory.
#[derive(Debug)]
pub(crate) struct SimulatedListener {
    network: Arc<Network>,
    address: SocketAddr,
    waiting: AsyncMutex<mpsc::Receiver<Pipe>>,
}

impl SimulatedListener {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn accept(&self) -> Pipe {
        match self.waiting.lock().await.recv().await {
            Some(pipe) => pipe,
            // The network holds a sender for as long as this listener lives.
            None => std::future::pending().await,
        }
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        self.network.state.lock().listeners.remove(&self.address);
    }
}
