//! Errors of threads and sockets, named by what the reader can do about them.

use std::io;
use std::net::SocketAddr;

/// The result of a runtime operation that can fail.
pub type Result<T> = std::result::Result<T, RuntimeError>;

/// A failure of the runtime.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The executor could not be built: the system refuses threads or descriptors.
    #[error("start the executor: {0}")]
    Start(#[source] io::Error),

    /// The system gives no entropy, so there are no random numbers.
    #[error("draw a seed from the system: {0}")]
    Entropy(String),

    /// Another socket listens there. Stop the other program or choose another port.
    #[error("listen on {address}: the address is in use by another program")]
    AddressInUse {
        /// The requested address.
        address: SocketAddr,
    },

    /// No interface of this machine has the address. Correct it.
    #[error("listen on {address}: this machine does not have the address")]
    AddressNotHere {
        /// The requested address.
        address: SocketAddr,
    },

    /// The system refuses, as it does for ports below 1024. Choose another port or permit this one.
    #[error("listen on {address}: not permitted")]
    AddressDenied {
        /// The requested address.
        address: SocketAddr,
    },

    /// Listening failed in another way.
    #[error("listen on {address}: {source}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },

    /// A connection could not be accepted: it was closed already, or descriptors ran out. Wait a
    /// moment and accept again.
    #[error("accept on {address}: {source}")]
    Accept {
        /// The address listened on.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },

    /// No listener has this address.
    #[error("connect to {address}: refused")]
    Refused {
        /// The address connected to.
        address: SocketAddr,
    },

    /// Connecting failed in another way.
    #[error("connect to {address}: {source}")]
    Connect {
        /// The address connected to.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },

    /// The thread could not be started.
    #[error("start the thread {name}: {source}")]
    Thread {
        /// The name given to the thread.
        name: String,
        /// The system's error.
        source: io::Error,
    },

    /// A simulation has one thread only: a second would run in real time. Run the work as a task.
    #[error("start the thread {name}: a simulation has no threads")]
    NoThreads {
        /// The name given to the thread.
        name: String,
    },
}

impl RuntimeError {
    /// An error of the system while starting to listen.
    pub(crate) fn listen(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { address },
            io::ErrorKind::AddrNotAvailable => Self::AddressNotHere { address },
            io::ErrorKind::PermissionDenied => Self::AddressDenied { address },
            _ => Self::Listen { address, source },
        }
    }

    /// An error of the system while connecting.
    pub(crate) fn connect(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused { address },
            _ => Self::Connect { address, source },
        }
    }
}
