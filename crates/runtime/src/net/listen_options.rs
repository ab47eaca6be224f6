//! Options of a listening socket.

/// Options of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted; the system may allow fewer.
    pub backlog: u32,
    /// Lets several sockets of one user share the port, each getting a part of the connections. Off by
    /// default, because a second server on the same port would then go unnoticed.
    pub reuse_port: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 1024,
            reuse_port: false,
        }
    }
}
